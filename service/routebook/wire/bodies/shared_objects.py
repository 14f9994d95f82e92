"""Objects that occur in more than one body."""

from collections.abc import Mapping
from typing import Final

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData, TopicMapping
from routebook.wire.bodies.body_error import JsonShapeError
from routebook.wire.bodies.json_values import flag, int32, int64, members, text

NO_VERSION: Final = DataVersion()

MAX_SHARED_QUEUES: Final = 4096
"""Topics with equal queues share one value, so that most of a large table costs nothing. A broker has a handful of such
values; who sends a different one with every topic shall not have all of them remembered twice.
"""


def data_version_of(value: object, *, now_ms: int) -> DataVersion | None:
    """None when the broker says null: it then counts as changed every time, as it does with the reference."""
    said = members("dataVersion", value)
    if said is None:
        return None
    return DataVersion(
        state_version=int64("stateVersion", said.get("stateVersion"), absent=0),
        timestamp=int64("timestamp", said.get("timestamp"), absent=now_ms),
        counter=int64("counter", said.get("counter"), absent=0),
    )


def queue_data_of(said: Mapping[str, object], defaults: QueueData) -> QueueData:
    return QueueData(
        read_queues=int32("readQueueNums", said.get("readQueueNums"), absent=defaults.read_queues),
        write_queues=int32("writeQueueNums", said.get("writeQueueNums"), absent=defaults.write_queues),
        perm=int32("perm", said.get("perm"), absent=defaults.perm),
        flags=int32("topicSysFlag", said.get("topicSysFlag"), absent=defaults.flags),
    )


def mapping_of(value: object, *, topic: str | None) -> TopicMapping:
    """`topic` is the key it came under. One that names no host broker stops the reference in the midst of its work."""
    said = members("topicQueueMappingInfo", value)
    if said is None:
        raise JsonShapeError("topicQueueMappingInfo", value, "an object")
    bname = text("bname", said.get("bname"))
    own_topic = text("topic", said.get("topic"))
    named = own_topic if own_topic is not None else topic
    if bname is None or named is None:
        raise JsonShapeError("topicQueueMappingInfo", value, "an object with topic and bname")
    scope = text("scope", said.get("scope"))
    rest = {} if scope is None else {"scope": scope}
    return TopicMapping(
        topic=named,
        bname=bname,
        total_queues=int32("totalQueues", said.get("totalQueues"), absent=0),
        epoch=int64("epoch", said.get("epoch"), absent=0),
        dirty=flag(said.get("dirty")),
        current_ids=_current_ids(said.get("currIdMap")),
        **rest,
    )


def _current_ids(value: object) -> tuple[tuple[int, int], ...]:
    said = members("currIdMap", value) or {}
    if "" in said or None in said.values():
        raise JsonShapeError("currIdMap", value, "numbers to numbers")
    ids = {
        int32("key of currIdMap", logical, absent=0): int32("value of currIdMap", physical, absent=0)
        for logical, physical in said.items()
    }
    return tuple(sorted(ids.items()))


def filters_of(value: object) -> tuple[str, ...] | None:
    """None leaves the stored list alone, empty removes it. The reference reads a single text as a list of one."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [value] if value else []
    if not isinstance(value, list):
        raise JsonShapeError("filterServerList", value, "a list of texts")
    said = (text("filterServerList", item) for item in value)
    return tuple(item for item in said if item is not None)
