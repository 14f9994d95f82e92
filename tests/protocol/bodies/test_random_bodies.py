"""For any input, readers raise only a BodyError, and read what was written."""

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from routebook.model.broker import BrokerGroup, DataVersion, QueueData, TopicMapping, TopicRoute
from routebook.protocol.answer_bodies import Dialect, encode_data_version, encode_route
from routebook.protocol.body_json import (
    ANY_JSON,
    BodyError,
    parse_leniently,
    read_data_version,
    read_json,
    read_queue_datas,
)
from tests.protocol.bodies.compressed_bodies import compressed, content_of
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import (
    BROKER_4_9_7,
    BROKER_4_9_7_COMPRESSED,
    BROKER_5_5_0,
    BROKER_5_5_0_COMPRESSED,
    E11,
    E11_PLAIN,
    NOW_MS,
)

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(lambda name: name != "")
QUEUES = st.builds(QueueData, INT, INT, INT, INT)
VERSIONS = st.builds(DataVersion, LONG, LONG, LONG)
IDS = st.dictionaries(INT, INT, max_size=4).map(lambda ids: tuple(sorted(ids.items())))
MAPPINGS = st.builds(TopicMapping, NAME, NAME, INT, LONG, st.booleans(), TEXT, IDS)
JSON = st.recursive(
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
FIELDS = [
    *("topicConfigSerializeWrapper", "topicConfigTable", "dataVersion", "topicQueueMappingInfoMap", "filterServerList"),
    *("topicName", "perm", "readQueueNums", "counter", "timestamp", "bname", "topic", "currIdMap", "queueDatas", "T"),
]
LIKELY = st.recursive(
    st.none() | st.booleans() | INT | st.floats() | st.sampled_from(["", "1", "x", "\ud800", "9" * 30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=30,
)
RECORDED = st.sampled_from(
    [BROKER_4_9_7, BROKER_4_9_7_COMPRESSED, BROKER_5_5_0, BROKER_5_5_0_COMPRESSED, E11, E11_PLAIN]
)
HEADER_VERSIONS = st.sampled_from([-1, 0, 36, 37, 412, 413, 513])


def suppress_body_error(read: Callable[[], object]) -> None:
    with suppress(BodyError):
        read()


def assert_only_body_errors(body: bytes, version: int) -> None:
    suppress_body_error(lambda: read_json(body, ANY_JSON))
    suppress_body_error(lambda: read_data_version(body, now_ms=NOW_MS))
    suppress_body_error(lambda: read_queue_datas(body))
    for is_compressed in (False, True):
        read = partial(read_registration_body, body, version=version, now_ms=NOW_MS, compressed=is_compressed)
        suppress_body_error(read)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), HEADER_VERSIONS)
def test_random_bytes_raise_only_our_error(body: bytes, version: int) -> None:
    assert_only_body_errors(body, version)
    assert_only_body_errors(zlib.compress(body), version)


@settings(max_examples=300, deadline=None)
@given(RECORDED, st.data(), HEADER_VERSIONS)
def test_corrupted_bodies_raise_only_our_error(body: bytes, data: st.DataObject, version: int) -> None:
    corrupted = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(corrupted)))
        end = data.draw(st.integers(start, min(start + 8, len(corrupted))))
        corrupted[start:end] = data.draw(st.binary(max_size=8) | st.text("{}[],:\"'\\ 0-a", max_size=4).map(str.encode))
    assert_only_body_errors(bytes(corrupted), version)
    assert_only_body_errors(zlib.compress(bytes(corrupted)), version)


@settings(max_examples=300, deadline=None)
@given(LIKELY, HEADER_VERSIONS)
def test_known_names_with_wrong_values_raise_only_our_error(value: object, version: int) -> None:
    assert_only_body_errors(json.dumps(value).encode(), version)


@settings(max_examples=300, deadline=None)
@given(st.text("{}[],:\"'\\ \n-01aeE.untf", max_size=60))
def test_almost_valid_json_raises_only_our_error(text: str) -> None:
    suppress_body_error(lambda: read_json(text.encode(), ANY_JSON))
    suppress_body_error(lambda: parse_leniently(text))


@settings(max_examples=300, deadline=None)
@given(JSON, st.sampled_from([None, 1]), st.booleans())
@example({"": [{}], "\\": '"{1:'}, None, False)
def test_standard_json_is_parsed_leniently_with_the_same_result(value: object, indent: int | None, raw: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=not raw)
    assert parse_leniently(text) == value
    if raw and any("\ud800" <= letter <= "\udfff" for letter in text):
        return
    assert read_json(text.encode(), ANY_JSON) == value


@settings(max_examples=300, deadline=None)
@given(st.recursive(INT | st.text('{,1:"\\ ', max_size=6), lambda i: st.dictionaries(INT, i, max_size=4), max_leaves=9))
def test_integer_keys_are_read_with_and_without_quotes(value: object) -> None:
    unquoted = written_plainly(value)
    assert read_json(unquoted.encode(), ANY_JSON) == parse_leniently(unquoted) == json.loads(json.dumps(value))


def written_plainly(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} :{written_plainly(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


@settings(max_examples=100, deadline=None)
@given(VERSIONS)
def test_data_versions_are_read_back(version: DataVersion) -> None:
    assert read_data_version(encode_data_version(version), now_ms=NOW_MS) == version


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAME, QUEUES, max_size=4), st.sampled_from(Dialect))
def test_queues_of_a_route_are_read_back(queues: dict[str, QueueData], dialect: Dialect) -> None:
    groups = tuple(BrokerGroup(name, "c", addresses={0: "h:1", 2**60: "h:2"}) for name in queues)
    assert dict(read_queue_datas(encode_route(TopicRoute(queues, groups), dialect))) == queues


@settings(max_examples=100, deadline=None)
@given(VERSIONS, st.dictionaries(NAME, QUEUES, max_size=4), st.lists(MAPPINGS, max_size=3), st.lists(TEXT, max_size=3))
def test_registrations_are_read_back(
    version: DataVersion, topics: dict[str, QueueData], mappings: list[TopicMapping], filters: list[str]
) -> None:
    by_topic = {mapping.topic: mapping for mapping in mappings}
    body = {
        "filterServerList": filters,
        "topicConfigSerializeWrapper": {
            "dataVersion": json.loads(encode_data_version(version)),
            "topicConfigTable": {name: config_of(name, queues) for name, queues in topics.items()},
            "topicQueueMappingInfoMap": {topic: info_of(mapping) for topic, mapping in by_topic.items()},
        },
    }
    found = read_registration_body(json.dumps(body).encode(), version=513, now_ms=NOW_MS)
    assert (found.data_version, found.topics, found.table_keys) == (version, topics, None)
    assert (found.mappings, found.filters) == (by_topic, tuple(filters))


def config_of(name: str, queues: QueueData) -> dict[str, object]:
    numbers = {"readQueueNums": queues.read_queues, "writeQueueNums": queues.write_queues}
    return {"topicName": name, **numbers, "perm": queues.perm, "topicSysFlag": queues.flags}


def info_of(mapping: TopicMapping) -> dict[str, object]:
    return {
        "topic": mapping.topic,
        "bname": mapping.bname,
        "totalQueues": mapping.total_queues,
        "epoch": mapping.epoch,
        "dirty": mapping.dirty,
        "scope": mapping.scope,
        "currIdMap": dict(mapping.current_ids),
    }


@settings(max_examples=100, deadline=None)
@given(
    VERSIONS,
    st.dictionaries(NAME.filter(lambda name: " " not in name), QUEUES, max_size=4),
    st.lists(MAPPINGS, max_size=3),
    st.lists(TEXT, max_size=3),
)
def test_compressed_registrations_are_read_back_except_for_the_flags(
    version: DataVersion, topics: dict[str, QueueData], mappings: list[TopicMapping], filters: list[str]
) -> None:
    content = content_of(
        [f"{name} {q.read_queues} {q.write_queues} {q.perm} SINGLE_TAG {{}}".encode() for name, q in topics.items()],
        data_version=encode_data_version(version),
        filters=json.dumps(filters).encode(),
        mappings=[json.dumps(info_of(mapping)).encode() for mapping in mappings],
    )
    found = read_registration_body(compressed(content), version=513, now_ms=NOW_MS, compressed=True)
    without_flags = {name: QueueData(q.read_queues, q.write_queues, q.perm) for name, q in topics.items()}
    assert (found.data_version, found.topics, found.filters) == (version, without_flags, tuple(filters))
    assert found.mappings == {mapping.topic: mapping for mapping in mappings}
