"""What the body of a registration says, whatever form it came in.

A zlib stream, inflated to no more than a limit, whatever the stream or the lengths inside say.

Objects that occur in more than one body.

The compressed form of a registration's body: a zlib stream of lengths and texts.

The body of REGISTER_BROKER (103). Nothing of it takes effect unless all of it can be read: the reference begins
before, and leaves debris.

Bodies of requests other than the registration: 322 and 217.
"""

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from routebook.model.broker import DataVersion
from routebook.model.topic import QueueData, TopicMapping
from routebook.protocol.body_json import (
    BodyError,
    ChecksumError,
    InflateError,
    InflateLimitError,
    JsonShapeError,
    NullBodyError,
    RegistrationBodyError,
    VersionError,
    flag,
    int32,
    int64,
    members,
    read_json,
    text,
    well_formed,
)


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """Each field goes as it is into the field of the same name of `model.Registration`."""

    data_version: DataVersion | None
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    """By the topic's own name."""
    table_keys: frozenset[str] | None = None
    """The keys of the table they came in; None when these are the names."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    filters: tuple[str, ...] | None = ()


_STEP_BYTES: Final = 64 * 1024
"""Fed in steps: what one step leaves over is copied by the next."""
_INT: Final = struct.Struct(">i")


class Inflated:
    """Reads integers and lengths-with-bytes from the front.

    What comes after the last thing that is asked for does not matter, as with the reference: neither what it is, nor
    whether it would pass the limit, nor whether the stream has an end at all. So too little is an error only for the
    one who needs more.
    """

    def __init__(self, body: bytes, *, limit_bytes: int) -> None:
        self._content, self._shortfall = _inflate(body, limit_bytes)
        self._at = 0

    def take_int(self) -> int:
        number: int = _INT.unpack(self._take(_INT.size))[0]
        return number

    def take_block(self) -> bytes:
        """A length and as many bytes."""
        return self._take(self.take_int())

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0:
            raise InflateError(f"A length inside the compressed body is {count}.", advice="Allowed: 0 or more.")
        if end > len(self._content):
            raise self._shortfall
        taken = self._content[self._at : end]
        self._at = end
        return bytes(taken)


def _inflate(body: bytes, limit_bytes: int) -> tuple[bytearray, InflateError]:
    """What there is up to the limit, and the error of whoever wants more."""
    stream = zlib.decompressobj()
    content = bytearray()
    rest = memoryview(body)
    fed = b""
    try:
        while not stream.eof and (rest or fed):
            if not fed:
                fed, rest = bytes(rest[:_STEP_BYTES]), rest[_STEP_BYTES:]
            room = limit_bytes - len(content)
            if room <= 0:
                return content, InflateLimitError(limit_bytes)
            content += stream.decompress(fed, min(room, _STEP_BYTES))
            fed = stream.unconsumed_tail
    except zlib.error as error:
        return content, InflateError(f"The compressed body is no zlib stream: {error}.")
    return content, InflateError(f"The compressed body ends after {len(content)} bytes, in the midst of something.")


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


FIRST_VERSION_WITH_MAPPINGS: Final = 413
"""5.0.0. Older ones end with the filter list."""

MAX_BLOCK_VALUES: Final = 2**17
"""Values in the JSON of one block. Six kilobytes inflate to five million empty lists: the frame's size bounds nothing
here. The largest honest block is the mapping of one static topic, a value a queue.
"""

_FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_NUMBER: Final = re.compile(r"[+-]?\d+")
"""Java's decimal: no blanks, no underscores."""
_TOPIC_FORM: Final = "name readQueueNums writeQueueNums perm filterType [attributes], with one blank between"


def read_compressed(body: bytes, *, version: int, now_ms: int, max_inflated_bytes: int) -> RegistrationBody:
    content = Inflated(body, limit_bytes=max_inflated_bytes)
    data_version = data_version_of(_json(content.take_block()), now_ms=now_ms)
    topics = _topics(content)
    filters = _filters(content.take_block())
    mappings = _mappings(content) if version >= FIRST_VERSION_WITH_MAPPINGS else {}
    return RegistrationBody(data_version, topics, None, mappings, filters)


def _topics(content: Inflated) -> dict[str, QueueData]:
    """The count is believed only as long as there is content: it allocates nothing."""
    topics: dict[str, QueueData] = {}
    seen: dict[tuple[str, ...], QueueData] = {}
    for _ in range(content.take_int()):
        # As Java decodes: what is not UTF-8 becomes the replacement character, and the name is another one.
        fields = content.take_block().decode("utf-8", "replace").split(" ")
        queues = tuple(fields[1:5])
        found = seen.get(queues)
        if found is None:
            found = _queue_data(fields)
            if len(seen) < MAX_SHARED_QUEUES:
                seen[queues] = found
        topics[fields[0]] = found
    return topics


def _queue_data(fields: list[str]) -> QueueData:
    """Flags and order are not carried; the attributes are not used, so it does not matter whether they are JSON."""
    if len(fields) < 5 or fields[4] not in _FILTER_TYPES:
        raise JsonShapeError("topic", " ".join(fields), _TOPIC_FORM)
    read_queues, write_queues, perm = (_decimal(field) for field in fields[1:4])
    return QueueData(read_queues, write_queues, perm, 0)


def _decimal(field: str) -> int:
    if not _NUMBER.fullmatch(field) or len(field) > 20:
        raise JsonShapeError("number of a topic", field, "a decimal number")
    return int32("number of a topic", int(field), absent=0)


def _filters(block: bytes) -> tuple[str, ...] | None:
    """Unparseable is logged by the reference, and the list stays empty."""
    try:
        return filters_of(_json(block))
    except BodyError:
        return ()


def _mappings(content: Inflated) -> dict[str, TopicMapping]:
    read = (mapping_of(_json(content.take_block()), topic=None) for _ in range(content.take_int()))
    return {mapping.topic: mapping for mapping in read}


def _json(block: bytes) -> object:
    return read_json(block, max_values=MAX_BLOCK_VALUES)


FIRST_VERSION_WITH_FILTERS: Final = 37
"""3.0.11. Older brokers send the inner wrapper alone, and no filter servers."""
DEFAULT_MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024
"""A compressed body may say no more than an uncompressed one: the frame limit's default."""

_DEFAULTS: Final = QueueData()


def read_registration_body(
    body: bytes,
    *,
    version: int,
    now_ms: int,
    compressed: bool = False,
    body_crc32: int = 0,
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES,
) -> RegistrationBody:
    """`version` is the header's, `body_crc32` 0 is not checked, `now_ms` is what a data version without time gets.

    Raises a BodyError, whose remark goes with code 1.
    """
    check_sum(body, body_crc32)
    if version < 0:
        raise VersionError(version)
    if version < FIRST_VERSION_WITH_FILTERS:
        return _read_before_filters(body, now_ms)
    if not body:
        return RegistrationBody(NO_VERSION)
    try:
        if compressed:
            return read_compressed(body, version=version, now_ms=now_ms, max_inflated_bytes=max_inflated_bytes)
        return _read_json_form(body, now_ms)
    except NullBodyError:
        raise
    except BodyError as error:
        raise RegistrationBodyError(error) from error


def check_sum(body: bytes, announced: int) -> None:
    """Over the bytes as they were sent; no body has the sum 0. Java keeps 31 bits of it."""
    if announced:
        found = zlib.crc32(body) & 0x7FFFFFFF
        if found != announced:
            raise ChecksumError(announced, found)


def _read_before_filters(body: bytes, now_ms: int) -> RegistrationBody:
    if not body:
        return RegistrationBody(NO_VERSION, filters=None)
    wrapper = members("topicConfigSerializeWrapper", read_json(body))
    if wrapper is None:
        raise NullBodyError("the topic table is null")
    return _read_wrapper({**wrapper, "topicQueueMappingInfoMap": None}, now_ms, filters=None)


def _read_json_form(body: bytes, now_ms: int) -> RegistrationBody:
    said = members("RegisterBrokerBody", read_json(body))
    if said is None:
        raise NullBodyError("the registration is null")
    wrapper = members("topicConfigSerializeWrapper", said.get("topicConfigSerializeWrapper")) or {}
    return _read_wrapper(wrapper, now_ms, filters=filters_of(said.get("filterServerList", [])))


def _read_wrapper(wrapper: dict[str, object], now_ms: int, *, filters: tuple[str, ...] | None) -> RegistrationBody:
    fresh = DataVersion(timestamp=now_ms)
    data_version = data_version_of(wrapper["dataVersion"], now_ms=now_ms) if "dataVersion" in wrapper else fresh
    table = members("topicConfigTable", wrapper.get("topicConfigTable")) or {}
    topics = _topics_of_registration(table)
    return RegistrationBody(
        data_version=data_version,
        topics=topics,
        table_keys=None if topics.keys() == table.keys() else frozenset(table),
        mappings=_mappings_of_registration(wrapper.get("topicQueueMappingInfoMap")),
        filters=filters,
    )


def _topics_of_registration(table: dict[str, object]) -> dict[str, QueueData]:
    """The value's own name counts, not the table's key. Most topics of a broker have the same queues: one value for
    all of these halves the time and the memory of a large table.
    """
    topics: dict[str, QueueData] = {}
    seen: dict[tuple[object, ...], QueueData] = {}
    for key, config in table.items():
        if not isinstance(config, dict):
            raise JsonShapeError(f"topicConfigTable[{key[:255]!r}]", config, "an object")
        name = config.get("topicName")
        if not (isinstance(name, str) and name.isascii()):
            name = text("topicName", name)
            if name is None:
                raise JsonShapeError(f"topicName of topicConfigTable[{key[:255]!r}]", None, "a text")
        said = (
            config.get("readQueueNums"),
            config.get("writeQueueNums"),
            config.get("perm"),
            config.get("topicSysFlag"),
        )
        try:
            found = seen.get(said)
        except TypeError:  # a list or an object where a number belongs: let the conversion say so
            found = None
        if found is None:
            found = queue_data_of(config, _DEFAULTS)
            if len(seen) < MAX_SHARED_QUEUES:
                seen[said] = found
        topics[name] = found
    return topics


def _mappings_of_registration(value: object) -> dict[str, TopicMapping]:
    said = members("topicQueueMappingInfoMap", value) or {}
    return {well_formed(topic): mapping_of(mapping, topic=well_formed(topic)) for topic, mapping in said.items()}


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
