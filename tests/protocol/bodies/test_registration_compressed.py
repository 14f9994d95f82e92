"""The compressed form of a registration: a zlib stream of lengths and texts, all of which may be wrong."""

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from routebook.model.broker import DataVersion, QueueData, TopicMapping
from routebook.protocol.body_json import ChecksumError, InflateLimitError, NullBodyError, RegistrationBodyError
from routebook.protocol.registration_body import RegistrationBody
from tests.protocol.bodies.compressed_bodies import block, compressed, content_of, number
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import (
    BROKER_4_9_7_COMPRESSED,
    BROKER_5_5_0_COMPRESSED,
    E11,
    E11_CRC32,
    E11_PLAIN,
    MAPPING,
    NOW_MS,
    RETRY,
    VERSION,
)
from tests.support.figures import Figures

TWO = {"TBW102": QueueData(8, 8, 7), "TopicA": QueueData(8, 8, 6)}
ONE = {"TopicA": QueueData(8, 8, 6)}


def read(body: bytes, *, version: int = 513, **options: Any) -> RegistrationBody:
    return read_registration_body(body, version=version, now_ms=NOW_MS, compressed=True, **options)


def topics_of(*texts: bytes) -> dict[str, QueueData]:
    return dict(read(compressed(content_of(texts))).topics)


def test_the_example_of_the_specification() -> None:
    found = read(E11, body_crc32=E11_CRC32)
    assert found == RegistrationBody(DataVersion(0, 1_700_000_000_001, 3), TWO)
    assert read(compressed(E11_PLAIN)) == found


def test_the_checksum_covers_the_bytes_as_they_were_sent() -> None:
    with pytest.raises(ChecksumError):
        read(E11, body_crc32=zlib.crc32(E11_PLAIN) & 0x7FFFFFFF)


def test_what_a_broker_of_5_5_0_compresses() -> None:
    """Flags are not transmitted, so a unit topic becomes an ordinary one."""
    topics = {RETRY: QueueData(1, 1, 6, 0), "TBW102": QueueData(8, 8, 7)}
    found = read(BROKER_5_5_0_COMPRESSED)
    assert found == RegistrationBody(VERSION, topics, None, {"TBW102": MAPPING}, ("10.0.0.1:30000",))


def test_what_a_broker_of_4_9_7_compresses() -> None:
    found = read(BROKER_4_9_7_COMPRESSED, version=407)
    version = DataVersion(0, 1_700_000_000_001, 3)
    assert found == RegistrationBody(version, {"TBW102": QueueData(8, 8, 7)}, filters=("10.0.0.1:30000",))


def test_a_compressed_body_without_the_flag_is_not_utf_8() -> None:
    """Brokers 5.x have this defect."""
    with pytest.raises(NullBodyError):
        read_registration_body(BROKER_5_5_0_COMPRESSED, version=513, now_ms=NOW_MS)


@pytest.mark.parametrize("version", [37, 401, 412])
def test_before_5_0_0_nothing_is_read_after_the_filter_list(version: int) -> None:
    without = content_of(mappings=None)
    assert read(compressed(without), version=version).topics == ONE
    assert read(compressed(without + b"\xff\xff\xff\xff any"), version=version).mappings == {}


def test_since_5_0_0_the_number_of_mappings_must_be_there() -> None:
    with pytest.raises(RegistrationBodyError):
        read(compressed(content_of(mappings=None)), version=413)
    assert read(compressed(content_of(mappings=())), version=413).mappings == {}


def test_mappings_are_keyed_by_their_own_topic() -> None:
    mapping = b'{"bname":"broker-a","currIdMap":{0:0,2:1},"epoch":7,"topic":"TopicA","totalQueues":4}'
    found = read(compressed(content_of(mappings=[mapping])))
    assert found.mappings == {"TopicA": TopicMapping("TopicA", "broker-a", 4, 7, current_ids=((0, 0), (2, 1)))}
    for bad in (b"{}", b"", b"null", b'{"bname":"b"}', b'{"topic":"T"}', b"[]", b"{", b"\xff"):
        with pytest.raises(RegistrationBodyError):
            read(compressed(content_of(mappings=[bad])))


def test_bytes_after_the_end_and_a_missing_end_of_the_stream_are_ignored() -> None:
    assert read(compressed(content_of() + b"more")).topics == ONE
    assert read(compressed(content_of()) + b"more").topics == ONE
    assert read(compressed(content_of())[:-4]).topics == ONE


def test_a_stream_with_a_wrong_checksum_of_its_own_is_refused() -> None:
    """RocketMQ does not check it, but such a body is not the one that its sender wrote."""
    with pytest.raises(RegistrationBodyError):
        read(compressed(content_of())[:-4] + b"????")


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        (b"TopicA 8 4 6 SINGLE_TAG {}", ("TopicA", QueueData(8, 4, 6))),
        (b"TopicA 8 4 6 SINGLE_TAG", ("TopicA", QueueData(8, 4, 6))),
        (b"TopicA 8 4 6 MULTI_TAG nonsense", ("TopicA", QueueData(8, 4, 6))),
        (b'TopicA 8 4 6 SINGLE_TAG {"a": "b"}', ("TopicA", QueueData(8, 4, 6))),
        (b"TopicA +8 -4 6 SINGLE_TAG", ("TopicA", QueueData(8, -4, 6))),
        ("Tä 8 4 6 SINGLE_TAG".encode(), ("Tä", QueueData(8, 4, 6))),
        (b"T\xff 8 4 6 SINGLE_TAG", ("T\ufffd", QueueData(8, 4, 6))),
        (b" 8 4 6 SINGLE_TAG", ("", QueueData(8, 4, 6))),
    ],
)
def test_texts_of_topics(text: bytes, topic: tuple[str, QueueData]) -> None:
    assert topics_of(text) == dict([topic])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"TopicA",
        b"TopicA 8 8 6",
        b"TopicA 8 8 6 ",
        b"TopicA x 8 6 SINGLE_TAG",
        b"TopicA  8 8 6 SINGLE_TAG",
        b"TopicA 8 8 6.0 SINGLE_TAG",
        b"TopicA 1_0 8 6 SINGLE_TAG",
        b"TopicA 8\t 8 6 SINGLE_TAG",
        b"TopicA 2147483648 8 6 SINGLE_TAG",
        b"TopicA " + b"9" * 5000 + b" 8 6 SINGLE_TAG",
        b"TopicA 8 8 6 NOPE",
        b"TopicA 8 8 6 single_tag",
    ],
)
def test_one_invalid_topic_makes_the_whole_registration_invalid(text: bytes) -> None:
    with pytest.raises(RegistrationBodyError):
        topics_of(b"Good 8 8 6 SINGLE_TAG", text)


@pytest.mark.parametrize(
    ("sent", "filters"),
    [
        (b"[]", ()),
        (b'["a:1"]', ("a:1",)),
        (b"null", None),
        (b"", None),
        (b"nonsense", ()),
        (b"[a]", ()),
        (b"{}", ()),
        (b"[" * 100_000, ()),
    ],
)
def test_a_filter_list_that_cannot_be_parsed_is_empty(sent: bytes, filters: tuple[str, ...] | None) -> None:
    found = read(compressed(content_of(filters=sent)))
    assert (found.filters, found.topics) == (filters, ONE)


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        (b"{}", DataVersion(timestamp=NOW_MS)),
        (b"null", None),
        (b"", None),
        (b'{"counter":1,"timestamp":2}', DataVersion(0, 2, 1)),
    ],
)
def test_data_versions(sent: bytes, version: DataVersion | None) -> None:
    assert read(compressed(content_of(data_version=sent))).data_version == version


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        number(-1),
        number(2**31 - 1) + b"{}",
        block(b"{") + number(0),
        block(b"{}") + number(2**31 - 1) + block(b"T 1 1 1 SINGLE_TAG"),
        block(b"{}") + number(1) + number(-5),
        block(b"{}") + number(0) + number(2**31 - 1),
        content_of(mappings=None) + number(2**31 - 1),
    ],
)
def test_wrong_lengths_are_refused_at_once(content: bytes) -> None:
    with pytest.raises(RegistrationBodyError):
        read(compressed(content))


@pytest.mark.parametrize("body", [b"{}", b"\x78\xda", zlib.compress(b"")[:-1], b"\x1f\x8b" + bytes(20)])
def test_bytes_that_are_not_a_zlib_stream_are_refused(body: bytes) -> None:
    with pytest.raises(RegistrationBodyError):
        read(body)


def test_a_negative_number_of_topics_means_none() -> None:
    assert read(compressed(block(b"{}") + number(-1) + block(b"[]") + number(-1))).topics == {}


def peak_while(read_it: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read_it()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_decompression_bomb_is_refused_at_the_limit(figure: Figures) -> None:
    """256 MiB of zeros, announced as a data version, in a quarter of a megabyte."""
    size = 256 * 1024 * 1024
    squeezer = zlib.compressobj(9)
    pieces = [squeezer.compress(number(size))]
    pieces += [squeezer.compress(bytes(1024 * 1024)) for _ in range(size // (1024 * 1024))]
    bomb = b"".join([*pieces, squeezer.flush()])
    assert len(bomb) < 300_000

    def read_it() -> None:
        with pytest.raises(RegistrationBodyError) as caught:
            read(bomb)
        assert isinstance(caught.value.cause, InflateLimitError)

    figure("memory growth, one bomb of 256 MiB", peak_while(read_it) / 2**20, "MiB", at_most=40)


def test_a_bomb_of_empty_lists_does_not_become_objects() -> None:
    """Six kilobytes would become 160 MB of objects. A filter list that cannot be parsed is no error."""
    bomb = compressed(content_of(filters=b"[" + b"[]," * 2_000_000 + b"0]"))
    assert len(bomb) < 10_000
    assert peak_while(lambda: read(bomb)) < 40 * 1024 * 1024
    assert read(bomb).filters == ()


def test_a_decompression_bomb_after_the_end_is_ignored() -> None:
    assert read(compressed(content_of() + bytes(64 * 1024 * 1024))).topics == ONE


def test_the_limit_is_exact() -> None:
    content = content_of()
    body = compressed(content)
    assert read(body, max_inflated_bytes=len(content)).topics == ONE
    with pytest.raises(RegistrationBodyError) as caught:
        read(body, max_inflated_bytes=len(content) - 1)
    assert isinstance(caught.value.cause, InflateLimitError)
    assert str(len(content) - 1) in caught.value.remark


def test_a_body_that_inflates_too_far_is_refused_by_its_ratio() -> None:
    """The first MiB is free, since a small table of equal topics compresses well."""
    long = compressed(content_of(filters=b"[" + b"[]," * 700_000 + b"0]"))
    with pytest.raises(RegistrationBodyError) as caught:
        read(long, max_inflation_ratio=100)
    assert isinstance(caught.value.cause, InflateLimitError)
    assert "max_inflation_ratio" in caught.value.remark
    short = compressed(content_of(filters=b"[" + b"[]," * 200_000 + b"0]"))
    assert read(short, max_inflation_ratio=100).topics == ONE
