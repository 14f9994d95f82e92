"""JSON objects that occur in the bodies of requests, and the two short bodies: QUERYDATA_VERSION (322) and
REGISTER_TOPIC_IN_NAMESRV (217).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from routebook.model.broker import DataVersion, QueueData, TopicMapping
from routebook.protocol.body_json import Absent, JsonShapeError, Scalar, flag, int32, int64, read_json, text

FiltersBody = list[Scalar] | str | None


class DataVersionBody(Struct, rename="camel", gc=False):
    counter: Scalar = None
    state_version: Scalar = None
    timestamp: Scalar = None


class MappingBody(Struct, rename="camel", gc=False):
    topic: Scalar = None
    bname: Scalar = None
    total_queues: Scalar = None
    epoch: Scalar = None
    dirty: Any = None
    scope: Scalar = None
    curr_id_map: dict[str, Scalar] | Absent = None


class QueueDataBody(Struct, rename="camel"):
    broker_name: Scalar = None
    read_queue_nums: Scalar = None
    write_queue_nums: Scalar = None
    perm: Scalar = None
    topic_sys_flag: Scalar = None


class RouteBody(Struct, rename="camel"):
    queue_datas: list[QueueDataBody | None] | QueueDataBody | None = None
    """RocketMQ takes an object for a list of one."""


DATA_VERSION: Final = msgspec.json.Decoder(DataVersionBody | Absent)
_ROUTE: Final = msgspec.json.Decoder(RouteBody | Absent)

_NO_QUEUES: Final = QueueData(0, 0, 0, 0)


def data_version_of(body: DataVersionBody | str | None, *, now_ms: int) -> DataVersion | None:
    """None when the broker sent null: then every registration counts as changed, as in RocketMQ."""
    if not isinstance(body, DataVersionBody):
        return None
    return DataVersion(
        state_version=int64("stateVersion", body.state_version, absent=0),
        timestamp=int64("timestamp", body.timestamp, absent=now_ms),
        counter=int64("counter", body.counter, absent=0),
    )


def queue_data_of(read: object, write: object, perm: object, flags: object, *, defaults: QueueData) -> QueueData:
    return QueueData(
        read_queues=int32("readQueueNums", read, absent=defaults.read_queues),
        write_queues=int32("writeQueueNums", write, absent=defaults.write_queues),
        perm=int32("perm", perm, absent=defaults.perm),
        flags=int32("topicSysFlag", flags, absent=defaults.flags),
    )


def mapping_of(body: MappingBody | None, *, topic: str | None) -> TopicMapping:
    """`topic` is the key that held the mapping. A mapping without topic or host broker is refused; RocketMQ fails on it
    after it has stored half of the registration.
    """
    bname = text("bname", body.bname) if body else None
    own_topic = text("topic", body.topic) if body else None
    named = topic if own_topic is None else own_topic
    if body is None or bname is None or named is None:
        raise JsonShapeError("topicQueueMappingInfo", body, "an object with topic and bname")
    scope = text("scope", body.scope)
    rest = {} if scope is None else {"scope": scope}
    return TopicMapping(
        topic=named,
        bname=bname,
        total_queues=int32("totalQueues", body.total_queues, absent=0),
        epoch=int64("epoch", body.epoch, absent=0),
        dirty=flag(body.dirty),
        current_ids=_current_ids(body.curr_id_map or {}),
        **rest,
    )


def _current_ids(body: Mapping[str, Scalar]) -> tuple[tuple[int, int], ...]:
    if "" in body or None in body.values():
        raise JsonShapeError("currIdMap", body, "numbers to numbers")
    ids = {
        int32("key of currIdMap", logical, absent=0): int32("value of currIdMap", physical, absent=0)
        for logical, physical in body.items()
    }
    return tuple(sorted(ids.items()))


def filters_of(body: FiltersBody) -> tuple[str, ...] | None:
    """None leaves the stored list alone, an empty list removes it. RocketMQ reads a single text as a list of one."""
    if body is None:
        return None
    if isinstance(body, str):
        body = [body] if body else []
    texts = (text("filterServerList", item) for item in body)
    return tuple(item for item in texts if item is not None)


def read_data_version(body: bytes, *, now_ms: int) -> DataVersion | None:
    """Of QUERYDATA_VERSION (322). None: no body, or a null one, which differs from every stored version."""
    return data_version_of(read_json(body, DATA_VERSION), now_ms=now_ms)


def read_queue_datas(body: bytes) -> tuple[tuple[str, QueueData], ...]:
    """Of REGISTER_TOPIC_IN_NAMESRV (217): broker names and queues, in the order of the body, on which the rules depend.

    Nothing but `queueDatas` is read. An entry without a broker name gets the name "", which no broker has.
    """
    route = read_json(body, _ROUTE) if body else None
    entries = route.queue_datas if isinstance(route, RouteBody) else None
    if not isinstance(entries, list):
        entries = [] if entries is None else [entries]
    return tuple(_queue_data_entry(entry or QueueDataBody()) for entry in entries)


def _queue_data_entry(entry: QueueDataBody) -> tuple[str, QueueData]:
    queues = queue_data_of(
        entry.read_queue_nums, entry.write_queue_nums, entry.perm, entry.topic_sys_flag, defaults=_NO_QUEUES
    )
    return text("brokerName", entry.broker_name) or "", queues
