"""A lookup that matches its connection's template reads as a parser would read it."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from routebook.protocol.connection import Connection, Event
from routebook.protocol.frame import FrameLimits, PeerProtocolError, Request
from routebook.protocol.headers import decode_json_header
from routebook.protocol.lookup_template import LONGEST_HEADER, derive_template
from tests.protocol.plain_frames import framed, json_lookup, split
from tests.protocol.recorded_frames import recorded_frames
from tests.protocol.template_reading import read_with_template

LIMITS = FrameLimits()

HEADERS = [
    # In the order of keys that the Java, C++, Go and JavaScript clients use, and one that no client uses.
    b'{"code":105,"extFields":{"topic":"%b"},"flag":0,"language":"JAVA","opaque":%b,"version":513}',
    b'{"code":105,"extFields":{"topic":"%b"},"flag":0,"language":"CPP","opaque":%b,"version":275}\n',
    b'{"code":105,"extFields":{"acceptStandardJsonOnly":"true","topic":"%b"},"flag":2,"opaque":%b}',
    b'{"code": 105, "extFields": {"topic": "%b"}, "opaque": %b}',
    b'{"code":"105","extFields":{"topic":"%b","x":1.50},"remark":"\xc3\xa4","opaque":%b,"version":"401"}',
]
OPAQUE_FIRST = b'{"code":105,"language":"GO","version":317,"opaque":%b,"flag":0,"remark":"","extFields":{"topic":"%b"}}'


def header(text: bytes, topic: bytes, opaque: bytes) -> bytes:
    return text % ((opaque, topic) if text is OPAQUE_FIRST else (topic, opaque))


def with_template(sample: bytes) -> Connection:
    """A connection that has received a few such lookups, and has no incomplete frame."""
    connection = Connection(LIMITS)
    for _ in range(4):
        connection.receive(sample)
    return connection


def outcome(connection: Connection, pieces: Iterable[bytes]) -> list[Event | str]:
    """What a port reads: by the template as far as possible, the rest by the parser. Equal errors have equal texts."""
    events = [event for piece in pieces for event in read_with_template(connection, piece)]
    return [f"{event.violation}: {event}" if isinstance(event, PeerProtocolError) else event for event in events]


def assert_reads_like_a_parser(sample: bytes, *pieces: bytes) -> None:
    parser = Connection(LIMITS)
    parsed = [event for piece in pieces for event in parser.receive(piece)]
    texts = [f"{event.violation}: {event}" if isinstance(event, PeerProtocolError) else event for event in parsed]
    assert outcome(with_template(sample), pieces) == texts


def has_template(text: bytes) -> bool:
    request = decode_json_header(text, b"")
    assert isinstance(request, Request)
    return derive_template(text, request, LIMITS) is not None


headers = st.sampled_from([*HEADERS, OPAQUE_FIRST])
topics = st.one_of(
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
    st.sampled_from(
        [b"", b'a"', b'a","x":"', b'a"},"opaque":9,"x":{"y":"', b"\\", b"\\u0041", b"\n", b"\xff", b"%RETRY%g"]
    ),
)
opaques = st.one_of(
    st.just(b"12"),
    st.integers(0, 2**30).map(lambda number: b"%d" % number),
    st.integers(-(2**33), 2**33).map(lambda number: b"%d" % number),
    st.sampled_from(
        [b"", b"00", b"01", b"-0", b"+1", b"1.0", b"1e3", b'"5"', b"null", b" 5", b"5 ", b'1,"code":106', b"\xd9\xa1"]
    ),
)


@pytest.mark.parametrize("text", [*HEADERS, OPAQUE_FIRST])
def test_usual_headers_give_a_template(text: bytes) -> None:
    assert has_template(header(text, b"TopicA", b"7"))


@pytest.mark.parametrize("release", ["5.5.0", "4.9.7", "4.9.3"])
def test_headers_of_real_clients_give_a_template(release: str) -> None:
    assert has_template(recorded_frames(release)["json request 105"][8:])


@settings(deadline=None)
@given(headers, topics, opaques, st.binary(max_size=3))
@example(HEADERS[0], b"TopicB", b"999999999", b"")
@example(HEADERS[0], b"TopicB", b"1000000000", b"")
@example(HEADERS[0], b"TopicB", b"2147483648", b"")
@example(OPAQUE_FIRST, b"TopicB", b"12", b"body")
def test_any_values_are_read_as_by_a_parser(text: bytes, topic: bytes, opaque: bytes, body: bytes) -> None:
    sample = framed(header(text, b"TopicA", b"7"))
    assert_reads_like_a_parser(sample, framed(header(text, topic, opaque), body))


@settings(deadline=None)
@given(headers, headers, st.integers(0, 2**32))
def test_a_header_with_some_bytes_changed_is_read_as_by_a_parser(text: bytes, other: bytes, seed: int) -> None:
    source = random.Random(seed)
    changed = bytearray(header(other, b"TopicB", b"12"))
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(changed))
        match source.randrange(3):
            case 0:
                changed[at] = source.choice(b'"{}[]:,\\ 0a-\n')
            case 1:
                del changed[at]
            case _:
                changed[at:at] = source.choice([b'"', b"\\", b'"opaque":3,', b'"topic":"x",', b"0", b" "])
    assert_reads_like_a_parser(framed(header(text, b"TopicA", b"7")), framed(bytes(changed)) + json_lookup())


@settings(deadline=None)
@given(st.lists(st.integers(0, 1200), max_size=30))
def test_any_split_of_lookups_and_other_requests_reads_the_same(cuts: list[int]) -> None:
    others = [recorded_frames("5.5.0")[f"json request {code}"] for code in (106, 205)]
    stream = b"".join([*map(json_lookup, ["A", "B", "Ü"]), *others, *(json_lookup(opaque=n) for n in range(5))])
    assert_reads_like_a_parser(json_lookup(), *split(stream, cuts))


@pytest.mark.parametrize(
    "text",
    [
        # The number that is found is not the opaque number, or not the only one.
        b'{"code":105,"x":{"opaque":7},"opaque" :7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"x":{"opaque":7},"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"opaque":7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"\\u006fpaque":7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":"7","extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7.0,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7 ,"extFields":{"topic":"TopicA"}}',
        # The same for the topic.
        b'{"code":105,"opaque":7,"topic":"TopicA","extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"topic":"TopicA","extFields":{"x":"y"}}',
        b'{"code":105,"opaque":7,"extFields":{"topic":"TopicA","topic" :"TopicA"}}',
        b'{"code":105,"opaque":7,"extFields":{"x":"topic","topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"extFields":{"topic":"a\\"b"}}',
        b'{"code":105,"opaque":7,"extFields":{"topic":1}}',
        b'{"code":105,"opaque":7,"extFields":{"topic":null}}',
        b'{"code":105,"opaque":7,"extFields":{}}',
        b'{"code":105,"opaque":7}',
        b'{"code":105,"opaque":7,"extFields":{"topic":"' + b"T" * LONGEST_HEADER + b'"}}',
    ],
)
def test_unusual_headers_give_no_template(text: bytes) -> None:
    assert not has_template(text)


def test_no_template_is_offered_in_the_middle_of_a_frame() -> None:
    """A body that looks like a lookup is read as a body."""
    connection = with_template(json_lookup())
    carrier = framed(b'{"code":103,"opaque":3}', json_lookup())
    assert connection.receive(carrier[: -len(json_lookup())]) == []
    assert connection.lookup_template is None
    assert connection.receive(json_lookup()) == [Request(103, 3, body=json_lookup(), version=0)]
    assert connection.lookup_template is not None


@pytest.mark.parametrize("header_length", [0, 10, 127, 129])
def test_a_lookup_with_another_header_length_is_read_as_by_a_parser(header_length: int) -> None:
    lookup = json_lookup()
    assert_reads_like_a_parser(lookup, lookup[:4] + header_length.to_bytes(4, "big") + lookup[8:])


def test_an_incomplete_lookup_is_left_to_the_parser() -> None:
    longer = framed(json_lookup()[8:] + b" ")
    connection = with_template(json_lookup())
    assert outcome(connection, [longer[:-1]]) == []
    assert outcome(connection, [longer[-1:]]) == [Request(105, 1, {"topic": "TopicA"})]


def test_a_template_keeps_to_the_limits() -> None:
    sample = json_lookup("T" * 10)
    connection = Connection(FrameLimits(max_frame_bytes=len(sample), max_header_bytes=len(sample) - 8))
    for _ in range(4):
        assert len(connection.receive(sample)) == 1
    (error,) = outcome(connection, [json_lookup("T" * 11)])
    assert str(error).startswith("frame length")
