"""Bodies of requests other than the registration: 322 and 217."""

from typing import Final

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData
from routebook.wire.bodies.body_error import JsonShapeError
from routebook.wire.bodies.json_reading import read_json
from routebook.wire.bodies.json_values import members, text
from routebook.wire.bodies.shared_objects import data_version_of, queue_data_of

_ABSENT_IS_ZERO: Final = QueueData(0, 0, 0, 0)


def read_data_version(body: bytes, *, now_ms: int) -> DataVersion | None:
    """Of QUERY_DATA_VERSION (322). None: no body or a null one, which differs from whatever is stored."""
    return data_version_of(read_json(body), now_ms=now_ms)


def read_queue_datas(body: bytes) -> tuple[tuple[str, QueueData], ...]:
    """Of REGISTER_TOPIC_IN_NAMESRV (217): broker name and queues, in the order of the body, which the rules look at.

    Nothing but `queueDatas` is read. Who names no broker has the name "", which no broker has.
    """
    route = members("route", read_json(body)) if body else None
    said = (route or {}).get("queueDatas")
    if said is None:
        return ()
    # The reference takes an object for a list of one.
    entries = said if isinstance(said, list) else [said]
    return tuple(_entry(entry) for entry in entries)


def _entry(value: object) -> tuple[str, QueueData]:
    if value is not None and not isinstance(value, dict):
        raise JsonShapeError("queueDatas", value, "a list of objects")
    said = value or {}
    return text("brokerName", said.get("brokerName")) or "", queue_data_of(said, _ABSENT_IS_ZERO)
