"""The body of a registration (REGISTER_BROKER, 103), in all its forms.

It comes as JSON, or as a zlib stream of lengths and texts. It is read completely before anything of it takes
effect. RocketMQ begins earlier, and leaves half a registration behind when the rest cannot be read.

Lookups must not wait until a large registration is read: 70,000 topics take 25 ms. So `read_registration_in_steps` is a
generator that yields about once a millisecond, and whatever runs it lets other work pass at each of these points.
"""

import codecs
import re
import secrets
import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from routebook.model.broker import DataVersion, QueueData, TopicMapping, parts_of
from routebook.protocol.body_json import (
    DATA_VERSION,
    MAX_JSON_VALUES,
    Absent,
    BodyError,
    ChecksumError,
    DataVersionBody,
    FiltersBody,
    InflateError,
    InflateLimitError,
    JsonLimitError,
    JsonShapeError,
    MappingBody,
    NullBodyError,
    RegistrationBodyError,
    Scalar,
    TopicLimitError,
    VersionError,
    check_values,
    data_version_of,
    decode_json,
    decode_standard,
    filters_of,
    int32,
    mapping_of,
    queue_data_of,
    read_json,
    text,
    well_formed,
)

_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Work that yields about once a millisecond and then returns its result."""


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """Each field is copied unchanged into the field of the same name of `model.broker.Registration`."""

    data_version: DataVersion | None
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    """By the name that the topic's own configuration gives."""
    table_keys: frozenset[str] | None = None
    """The keys of the table that held the topics; None when they equal the keys of `topics`."""
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    filters: tuple[str, ...] | None = ()


class TopicConfigBody(Struct, rename="camel", gc=False):
    topic_name: Scalar = None
    read_queue_nums: Scalar = None
    write_queue_nums: Scalar = None
    perm: Scalar = None
    topic_sys_flag: Scalar = None


class InnerWrapperBody(Struct, rename="camel"):
    """The whole body of a registration before 3.0.11."""

    data_version: DataVersionBody | Absent | UnsetType = UNSET
    topic_config_table: dict[str, TopicConfigBody] | Absent = None


class WrapperBody(InnerWrapperBody, rename="camel"):
    topic_queue_mapping_info_map: dict[str, MappingBody] | Absent = None


class RegisterBrokerBody(Struct, rename="camel"):
    filter_server_list: FiltersBody | UnsetType = UNSET
    topic_config_serialize_wrapper: WrapperBody | Absent = None


_TOPIC_TABLE: Final = msgspec.json.Decoder(dict[str, TopicConfigBody])
_MAPPING: Final = msgspec.json.Decoder(MappingBody | None)
_MAPPING_TABLE: Final = msgspec.json.Decoder(dict[str, MappingBody])
_FILTERS: Final = msgspec.json.Decoder(FiltersBody)
_INNER_WRAPPER: Final = msgspec.json.Decoder(InnerWrapperBody | Absent)
_REGISTRATION: Final = msgspec.json.Decoder(RegisterBrokerBody | Absent)
NO_VERSION: Final = DataVersion()
_QUEUE_DEFAULTS: Final = QueueData()
FIRST_VERSION_WITH_FILTERS: Final = 37
"""3.0.11. Older brokers send the inner wrapper alone, and no filter servers."""
DEFAULT_MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024
"""A compressed body may hold as much as an uncompressed one: the default of the frame limit."""
LARGE_BODY_BYTES: Final = 32 * 1024
"""A longer body yields before any work is done on it, so that several of them can be worked off one after the other."""
_STEP_BYTES: Final = 256 * 1024
"""As much is summed up, searched or copied in an eighth of a millisecond."""
_INFLATE_STEP_BYTES: Final = 64 * 1024
"""Output of one step of inflating: a fifth of a millisecond. What a step leaves of its input is copied by the next."""
_SLICE_BYTES: Final = 64 * 1024
"""As much JSON is decoded, and its 400 topics converted, in a third of a millisecond."""
MAX_QUOTING_BYTES: Final = 2 * 1024 * 1024
"""Putting integer keys in quotes takes 4 ms for a megabyte. In a longer body it is done slice by slice, or not at all.
"""
DEFAULT_MAX_TOPICS: Final = 100_000
NO_LIMIT: Final = 2**31
RATIO_FREE_BYTES: Final = 1024 * 1024
"""A body may inflate to this size whatever the ratio: short bodies with much repetition are honest ones."""
MAX_UNSLICED_BYTES: Final = 4 * 1024 * 1024
"""JSON that is not written as brokers write it is decoded in one go, which takes 5 ms for a megabyte."""
MAX_ARRAYS: Final = 2**17
MAX_MAPPED_QUEUES: Final = 2**18
"""Limit of queues in the mappings of one registration: a thousand static topics of 256 queues each."""
_STEP_TOPICS: Final = 250
"""Topics converted in one step, which takes a quarter of a millisecond: a peer that keeps the worker busy with large
bodies delays each lookup by one step.
"""
_STEP_TEXTS: Final = 125
"""Topics of a compressed body read in one step, an eighth of a millisecond. Two kilobytes can hold 30,000 of them."""
_STEP_MAPPED_QUEUES: Final = 500
MAX_SHARED_QUEUES: Final = 4096
"""Topics with equal queues share one value, which saves most of the time and memory of a large table. Real brokers have
a handful of values. The limit bounds the memory for a peer that sends a new value with every topic.
"""


def read_registration_in_steps(
    body: bytes,
    *,
    version: int,
    now_ms: int,
    compressed: bool = False,
    body_crc32: int = 0,
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES,
    max_inflation_ratio: int = 0,
    max_topics: int = DEFAULT_MAX_TOPICS,
) -> Steps[RegistrationBody]:
    """`version` is the header's. A `body_crc32` of 0 is not checked. `now_ms` stands in for a missing time of the data
    version. A ratio or number of topics of 0 means no limit. Raises a BodyError, whose remark belongs into the answer
    with code 1.
    """
    max_topics = max_topics or NO_LIMIT
    if len(body) > LARGE_BODY_BYTES:
        yield
    yield from _check_sum(body, body_crc32)
    if version < 0:
        raise VersionError(version)
    if version < FIRST_VERSION_WITH_FILTERS:
        return (yield from _read_inner_wrapper(body, now_ms, max_topics))
    if not body:
        return RegistrationBody(NO_VERSION)
    try:
        if compressed:
            limit = _inflation_limit(len(body), max_inflated_bytes, max_inflation_ratio)
            return (yield from _read_compressed(body, version, now_ms, limit, max_topics))
        return (yield from _read_json_form(body, now_ms, max_topics))
    except NullBodyError:
        raise
    except BodyError as error:
        raise RegistrationBodyError(error) from error


def _check_sum(body: bytes, announced: int) -> Steps[None]:
    """The sum covers the bytes as they were sent; no body has the sum 0. Java keeps 31 bits of it."""
    if not announced:
        return
    found = 0
    for part in _parts_of(body):
        if found:
            yield
        found = zlib.crc32(part, found)
    found &= 0x7FFFFFFF
    if found != announced:
        raise ChecksumError(announced, found)


def _parts_of(body: bytes) -> Iterator[bytes]:
    return (body[at : at + _STEP_BYTES] for at in range(0, len(body), _STEP_BYTES))


def _check_text(body: bytes, what: str, max_topics: int) -> Steps[None]:
    """Refuses bytes that are not UTF-8, and more values than a registration has, before any object is made of them."""
    decoder, separators = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        for number, part in enumerate(_parts_of(body)):
            if number:
                yield
            decoder.decode(part)
            separators += len(part) - len(part.translate(None, b",{["))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise NullBodyError(what) from None
    # A topic is an object, often with another one for its attributes. So is a mapping.
    for separator, limit in ((b",", MAX_JSON_VALUES), (b"[", MAX_ARRAYS), (b"{", 4 * max_topics + 64)):
        # To count all three at once is cheaper, and enough for most bodies.
        if separators > limit:
            found = 0
            for part in _parts_of(body):
                yield
                found += part.count(separator)
            check_values(found, limit)


def _read_inner_wrapper(body: bytes, now_ms: int, max_topics: int) -> Steps[RegistrationBody]:
    if not body:
        return RegistrationBody(NO_VERSION, filters=None)
    yield from _check_text(body, "the topic table is null", max_topics)
    _check_unsliced(body)
    wrapper = decode_json(body, _INNER_WRAPPER)
    if not isinstance(wrapper, InnerWrapperBody):
        raise NullBodyError("the topic table is null")
    tables = _Tables(max_topics)
    yield from tables.add_topics(wrapper.topic_config_table or {})
    return tables.registration(wrapper, None, now_ms)


def _check_unsliced(body: bytes) -> None:
    if len(body) > MAX_UNSLICED_BYTES:
        raise JsonLimitError(
            f"The body has {len(body)} bytes; the limit is {MAX_UNSLICED_BYTES} for JSON not written as brokers "
            "write it.",
            advice="Leave out blanks between its parts, or register in smaller parts.",
        )


def _read_json_form(body: bytes, now_ms: int, max_topics: int) -> Steps[RegistrationBody]:
    yield from _check_text(body, "the registration is null", max_topics)
    if len(body) > _STEP_BYTES:
        try:
            found = yield from _read_in_slices(body, now_ms, max_topics)
        except TopicLimitError:
            raise
        except BodyError:
            found = None
        if found:
            return found
        _check_unsliced(body)
        yield
    registration = decode_json(body, _REGISTRATION, quotes_keys=len(body) <= MAX_QUOTING_BYTES)
    if not isinstance(registration, RegisterBrokerBody):
        raise NullBodyError("the registration is null")
    return (yield from _Tables(max_topics).complete(registration, now_ms))


def _read_in_slices(body: bytes, now_ms: int, max_topics: int) -> Steps[RegistrationBody | None]:
    """Cuts members out of the two tables, slice by slice, and then reads the rest of the body as a whole.

    Each cut is guessed by a pattern and then proved: the slice must decode as the members of an object, and the rest
    must be a valid registration in which our marker is a member of the same table. To insert members into an object
    leaves valid JSON valid, so slices and rest together mean what the body means. If a proof fails the result is None,
    and the body is read in one go.

    It is None, too, for a table with keys that are not the names of their topics. If two topics of such a table have
    one name, the order of all keys decides which one counts. Real brokers send no such table.
    """
    tables = _Tables(max_topics)
    without_topics = yield from _cut_members(body, b'"topicConfigTable":{', _TOPIC_TABLE.decode, tables.add_topics)
    left = yield from _cut_members(
        without_topics,
        b'"topicQueueMappingInfoMap":{',
        lambda members: decode_standard(members, _MAPPING_TABLE),
        tables.add_mappings,
    )
    registration = decode_json(left, _REGISTRATION) if left is not body else None
    wrapper = registration.topic_config_serialize_wrapper if isinstance(registration, RegisterBrokerBody) else None
    if not isinstance(registration, RegisterBrokerBody) or not isinstance(wrapper, WrapperBody):
        return None
    if without_topics is not body and not _take_marker(wrapper.topic_config_table):
        return None
    if left is not without_topics and not _take_marker(wrapper.topic_queue_mapping_info_map):
        return None
    yield
    found = yield from tables.complete(registration, now_ms)
    return found if tables.keys_are_names else None


_MARKER: Final = secrets.token_hex(16)
"""The key of a member that no body has, because no peer knows it."""
_BETWEEN_MEMBERS: Final = re.compile(rb'\},(?="[^"\\]*+":\{)')
"""Between two members of a table as brokers write it. Not every match is one."""

_Table = TypeVar("_Table", dict[str, TopicConfigBody], dict[str, MappingBody])


def _cut_members(
    body: bytes, start: bytes, decode: Callable[[bytes], _Table], add: Callable[[_Table], Steps[None]]
) -> Steps[bytes]:
    """The body without the members that were passed to `add`, and with the marker in their place. It is the very same
    object if there are none.
    """
    found = body.find(start)
    if found < 0:
        return body
    first = at = found + len(start)
    while len(body) - at > _SLICE_BYTES:
        end = _BETWEEN_MEMBERS.search(body, at + _SLICE_BYTES, at + 2 * _SLICE_BYTES)
        if end is None:
            break
        try:
            members = decode(b"{%b}" % body[at : end.start() + 1])
        except (msgspec.DecodeError, RecursionError):
            break  # The table ends within this slice, or the match was none.
        yield from add(members)
        at = end.end()
        yield
    return body if at == first else b'%b"%b":{},%b' % (body[:first], _MARKER.encode(), body[at:])


def _take_marker(table: dict[str, _T] | str | None) -> bool:
    return isinstance(table, dict) and table.pop(_MARKER, None) is not None


class _Tables:
    """The topics and the mappings of one registration, as far as they have been read."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._mapped_queues = 0
        self.keys_are_names = True
        self._topics: dict[str, QueueData] = {}
        self._mappings: dict[str, TopicMapping] = {}
        self._queues: dict[tuple[Scalar, ...], QueueData] = {}

    def add_topics(self, table: Mapping[str, TopicConfigBody]) -> Steps[None]:
        """The topic's own name counts, not the table's key."""
        topics, queues = self._topics, self._queues
        _check_topics(len(table), self._max_topics)
        for number, chunk in enumerate(parts_of(table.items(), _STEP_TOPICS)):
            if number:
                yield
                _check_topics(len(topics), self._max_topics)
            for key, config in chunk:
                name = config.topic_name
                if name != key or not key.isascii():
                    name = text("topicName", name)
                    if name is None:
                        raise JsonShapeError(f"topicName of topicConfigTable[{key[:255]!r}]", None, "a text")
                    self.keys_are_names = self.keys_are_names and name == key
                numbers = config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
                found = queues.get(numbers)
                if found is None:
                    found = queue_data_of(*numbers, defaults=_QUEUE_DEFAULTS)
                    if len(queues) < MAX_SHARED_QUEUES:
                        queues[numbers] = found
                topics[name] = found

    def add_mappings(self, table: Mapping[str, MappingBody]) -> Steps[None]:
        step = 0
        for key, body in table.items():
            if step > _STEP_MAPPED_QUEUES:
                yield
                step = 0
            topic = well_formed(key)
            mapping = self._mappings[topic] = mapping_of(body, topic=topic)
            step += len(mapping.current_ids) + 5
            self._mapped_queues += len(mapping.current_ids)
            check_values(self._mapped_queues, MAX_MAPPED_QUEUES)

    def complete(self, body: RegisterBrokerBody, now_ms: int) -> Steps[RegistrationBody]:
        filters = () if body.filter_server_list is UNSET else filters_of(body.filter_server_list)
        wrapper = body.topic_config_serialize_wrapper
        if not isinstance(wrapper, WrapperBody):
            wrapper = WrapperBody()
        yield from self.add_topics(wrapper.topic_config_table or {})
        yield from self.add_mappings(wrapper.topic_queue_mapping_info_map or {})
        return self.registration(wrapper, filters, now_ms)

    def registration(self, wrapper: InnerWrapperBody, filters: tuple[str, ...] | None, now_ms: int) -> RegistrationBody:
        fresh = DataVersion(timestamp=now_ms)
        version = wrapper.data_version
        keys = None if self.keys_are_names else (wrapper.topic_config_table or {}).keys()
        return RegistrationBody(
            data_version=fresh if version is UNSET else data_version_of(version, now_ms=now_ms),
            topics=self._topics,
            table_keys=None if keys is None or keys == self._topics.keys() else frozenset(keys),
            mappings=self._mappings,
            filters=filters,
        )


# -- the compressed form of a registration

FIRST_VERSION_WITH_MAPPINGS: Final = 413
"""5.0.0. Older bodies end with the filter list."""
MAX_BLOCK_VALUES: Final = 2**14
"""Limit of values in the JSON of one block. Six kilobytes can inflate to five million empty lists, so the size of the
frame bounds nothing here. The largest honest block is the mapping of one static topic, with a value for each queue.
"""

_FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_NUMBER: Final = re.compile(r"[+-]?\d+")
"""Java's decimal numbers: no blanks, no underscores."""
_TOPIC_FORM: Final = "name readQueueNums writeQueueNums perm filterType [attributes], with one blank between"
_INT: Final = struct.Struct(">i")


class _Inflated:
    """Reads integers, and blocks of bytes with their length, from the beginning of the inflated body.

    What follows the last item that is read does not matter, as in RocketMQ: neither its content, nor its size, nor
    whether the stream ends properly. So `missing`, the reason why there are no more bytes, is raised only when more
    bytes are needed.
    """

    def __init__(self, content: bytes, missing: Callable[[], InflateError]) -> None:
        self._content = content
        self._missing = missing
        self._at = 0

    def take_int(self) -> int:
        number: int = _INT.unpack(self._take(_INT.size))[0]
        return number

    def take_block(self) -> bytes:
        """A length, and then as many bytes."""
        return self._take(self.take_int())

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0:
            raise InflateError(f"A length inside the compressed body is {count}.", advice="Allowed: 0 or more.")
        if end > len(self._content):
            raise self._missing()
        taken = self._content[self._at : end]
        self._at = end
        return taken


class _InflationLimit(NamedTuple):
    size: int
    setting: str

    def error(self) -> InflateError:
        return InflateLimitError(self.size, self.setting)


def _inflation_limit(length: int, max_bytes: int, max_ratio: int) -> _InflationLimit:
    by_ratio = max(length * max_ratio, RATIO_FREE_BYTES)
    if max_ratio and by_ratio < max_bytes:
        return _InflationLimit(by_ratio, "max_inflation_ratio")
    return _InflationLimit(max_bytes, "max_inflated_bytes")


def _check_topics(found: int, limit: int) -> None:
    if found > limit:
        raise TopicLimitError(found, limit)


def _check_announced_topics(content: bytearray, max_topics: int) -> bool:
    """Whether the announced number, which follows the data version, has been inflated and checked."""
    if len(content) < 2 * _INT.size:
        return False
    at = _INT.size + max(_INT.unpack_from(content)[0], 0)
    if len(content) < at + _INT.size:
        return False
    _check_topics(_INT.unpack_from(content, at)[0], max_topics)
    return True


def _inflate(body: bytes, limit: _InflationLimit, max_topics: int) -> Steps[_Inflated]:
    """Up to the limit, whatever the stream or the lengths inside it say. Too many topics are refused as soon as their
    number is known.
    """
    stream = zlib.decompressobj()
    has_checked = False
    content = bytearray()
    at, fed = 0, b""
    try:
        while not stream.eof and (at < len(body) or fed):
            if content:
                yield
            if not fed:
                fed, at = body[at : at + _INFLATE_STEP_BYTES], at + _INFLATE_STEP_BYTES
            room = limit.size - len(content)
            if room <= 0:
                return _Inflated(bytes(content), limit.error)
            content += stream.decompress(fed, min(room, _INFLATE_STEP_BYTES))
            fed = stream.unconsumed_tail
            has_checked = has_checked or _check_announced_topics(content, max_topics)
    except zlib.error as error:
        return _Inflated(bytes(content), partial(InflateError, f"The compressed body is no zlib stream: {error}."))
    ends = f"The compressed body ends after {len(content)} bytes, before the registration is complete."
    return _Inflated(bytes(content), partial(InflateError, ends))


def _read_compressed(
    body: bytes, version: int, now_ms: int, limit: _InflationLimit, max_topics: int
) -> Steps[RegistrationBody]:
    content = yield from _inflate(body, limit, max_topics)
    data_version = data_version_of(_read_block(content, DATA_VERSION), now_ms=now_ms)
    topics = yield from _read_topic_texts(content)
    filters = _read_filters(content)
    mappings: dict[str, TopicMapping] = {}
    count = content.take_int() if version >= FIRST_VERSION_WITH_MAPPINGS else 0
    _check_topics(count, max_topics)
    step = queues = 0
    for _ in range(count):
        if step > _STEP_MAPPED_QUEUES:
            yield
            step = 0
        mapping = mapping_of(_read_block(content, _MAPPING), topic=None)
        mappings[mapping.topic] = mapping
        step += len(mapping.current_ids) + 5
        queues += len(mapping.current_ids)
        check_values(queues, MAX_MAPPED_QUEUES)
    return RegistrationBody(data_version, topics, None, mappings, filters)


def _read_block(content: _Inflated, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    return read_json(content.take_block(), decoder, max_values=MAX_BLOCK_VALUES)


def _read_topic_texts(content: _Inflated) -> Steps[dict[str, QueueData]]:
    """The announced count allocates nothing: it only bounds how many texts are read."""
    topics: dict[str, QueueData] = {}
    known: dict[tuple[str, ...], QueueData] = {}
    for number in range(content.take_int()):
        if number and number % _STEP_TEXTS == 0:
            yield
        # As in Java, bytes that are not UTF-8 become the replacement character, and so another name.
        fields = content.take_block().decode("utf-8", "replace").split(" ")
        queues = tuple(fields[1:5])
        found = known.get(queues)
        if found is None:
            found = _queue_data_of_text(fields)
            if len(known) < MAX_SHARED_QUEUES:
                known[queues] = found
        topics[fields[0]] = found
    return topics


def _queue_data_of_text(fields: list[str]) -> QueueData:
    """The text has no flags. Its attributes are not used, so they need not be JSON."""
    if len(fields) < 5 or fields[4] not in _FILTER_TYPES:
        raise JsonShapeError("topic", " ".join(fields), _TOPIC_FORM)
    read_queues, write_queues, perm = (_decimal(field) for field in fields[1:4])
    return QueueData(read_queues, write_queues, perm, 0)


def _decimal(field: str) -> int:
    if not _NUMBER.fullmatch(field) or len(field) > 20:
        raise JsonShapeError("number of a topic", field, "a decimal number")
    return int32("number of a topic", int(field), absent=0)


def _read_filters(content: _Inflated) -> tuple[str, ...] | None:
    """RocketMQ logs a list that it cannot parse, and goes on with an empty one."""
    block = content.take_block()
    try:
        return filters_of(read_json(block, _FILTERS, max_values=MAX_BLOCK_VALUES))
    except BodyError:
        return ()
