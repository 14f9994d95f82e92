"""The body of REGISTER_BROKER (103). Nothing of it takes effect unless all of it can be read: the reference begins
before, and leaves debris.
"""

import zlib
from typing import Final

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData, TopicMapping
from routebook.wire.bodies.body_error import (
    BodyError,
    ChecksumError,
    JsonShapeError,
    NullBodyError,
    RegistrationBodyError,
    VersionError,
)
from routebook.wire.bodies.compressed_registration import read_compressed
from routebook.wire.bodies.json_reading import read_json
from routebook.wire.bodies.json_values import members, text, well_formed
from routebook.wire.bodies.registration_body import RegistrationBody
from routebook.wire.bodies.shared_objects import (
    MAX_SHARED_QUEUES,
    NO_VERSION,
    data_version_of,
    filters_of,
    mapping_of,
    queue_data_of,
)

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
    topics = _topics(table)
    return RegistrationBody(
        data_version=data_version,
        topics=topics,
        table_keys=None if topics.keys() == table.keys() else frozenset(table),
        mappings=_mappings(wrapper.get("topicQueueMappingInfoMap")),
        filters=filters,
    )


def _topics(table: dict[str, object]) -> dict[str, QueueData]:
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


def _mappings(value: object) -> dict[str, TopicMapping]:
    said = members("topicQueueMappingInfoMap", value) or {}
    return {well_formed(topic): mapping_of(mapping, topic=well_formed(topic)) for topic, mapping in said.items()}
