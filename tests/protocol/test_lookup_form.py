"""Whatever a connection has learnt of its peer, it reads what one that has learnt nothing reads."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from routebook.protocol.command import Request
from routebook.protocol.connection import Connection, Event
from routebook.protocol.frame import FrameLimits, PeerProtocolError
from routebook.protocol.headers import decode_json_header
from routebook.protocol.lookup_template import LONGEST_HEADER, learn
from tests.protocol.plain_frames import framed, json_lookup, split
from tests.protocol.recorded_frames import recorded_frames

LIMITS = FrameLimits()

FORMS = [
    # As the Java, C++, Go and JavaScript clients order the keys, and one of our own making.
    b'{"code":105,"extFields":{"topic":"%b"},"flag":0,"language":"JAVA","opaque":%b,"version":513}',
    b'{"code":105,"extFields":{"topic":"%b"},"flag":0,"language":"CPP","opaque":%b,"version":275}\n',
    b'{"code":105,"extFields":{"acceptStandardJsonOnly":"true","topic":"%b"},"flag":2,"opaque":%b}',
    b'{"code": 105, "extFields": {"topic": "%b"}, "opaque": %b}',
    b'{"code":"105","extFields":{"topic":"%b","x":1.50},"remark":"\xc3\xa4","opaque":%b,"version":"401"}',
]
OPAQUE_FIRST = b'{"code":105,"language":"GO","version":317,"opaque":%b,"flag":0,"remark":"","extFields":{"topic":"%b"}}'


def header(form: bytes, topic: bytes, opaque: bytes) -> bytes:
    return form % ((opaque, topic) if form is OPAQUE_FIRST else (topic, opaque))


def learnt_from(taught: bytes) -> Connection:
    """After a few lookups of that form, and surely in no other state."""
    connection = Connection(LIMITS)
    for _ in range(4):
        connection.receive(taught)
    return connection


def outcome(connection: Connection, pieces: Iterable[bytes]) -> list[Event | str]:
    """Errors are equal when they say the same."""
    events = [event for piece in pieces for event in connection.receive(piece)]
    return [f"{event.violation}: {event}" if isinstance(event, PeerProtocolError) else event for event in events]


def assert_read_alike(taught: bytes, *pieces: bytes) -> None:
    assert outcome(learnt_from(taught), pieces) == outcome(Connection(LIMITS), pieces)


def taught_by(form: bytes) -> bytes | None:
    text = header(form, b"TopicA", b"7")
    request = decode_json_header(text, b"")
    assert isinstance(request, Request)
    return text if learn(text, request, LIMITS) else None


forms = st.sampled_from([*FORMS, OPAQUE_FIRST])
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


@pytest.mark.parametrize("form", [*FORMS, OPAQUE_FIRST])
def test_the_usual_forms_are_learnt(form: bytes) -> None:
    assert taught_by(form)


@pytest.mark.parametrize("release", ["5.5.0", "4.9.7", "4.9.3"])
def test_what_real_clients_send_is_learnt(release: str) -> None:
    frame = recorded_frames(release)["json request 105"]
    request = decode_json_header(frame[8:], b"")
    assert isinstance(request, Request)
    assert learn(frame[8:], request, LIMITS)


@settings(deadline=None)
@given(forms, topics, opaques, st.binary(max_size=3))
@example(FORMS[0], b"TopicB", b"999999999", b"")
@example(FORMS[0], b"TopicB", b"1000000000", b"")
@example(FORMS[0], b"TopicB", b"2147483648", b"")
@example(OPAQUE_FIRST, b"TopicB", b"12", b"body")
def test_any_values_are_read_as_by_a_parser(form: bytes, topic: bytes, opaque: bytes, body: bytes) -> None:
    taught = framed(header(form, b"TopicA", b"7"))
    assert_read_alike(taught, framed(header(form, topic, opaque), body))


@settings(deadline=None)
@given(forms, forms, st.integers(0, 2**32))
def test_a_header_with_some_bytes_changed_is_read_as_by_a_parser(form: bytes, other: bytes, seed: int) -> None:
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
    assert_read_alike(framed(header(form, b"TopicA", b"7")), framed(bytes(changed)) + json_lookup())


@settings(deadline=None)
@given(st.lists(st.integers(0, 1200), max_size=30))
def test_any_split_of_lookups_and_others_gives_the_same(cuts: list[int]) -> None:
    others = [
        b"".join(recorded_frames(release)[f"json request {code}"] for code in (106, 205)) for release in ("5.5.0",)
    ]
    stream = b"".join([*map(json_lookup, ["A", "B", "Ü"]), *others, *(json_lookup(opaque=n) for n in range(5))])
    assert_read_alike(json_lookup(), *split(stream, cuts))


@pytest.mark.parametrize(
    "text",
    [
        # The number that is found is not the one that counts, or not alone.
        b'{"code":105,"x":{"opaque":7},"opaque" :7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"x":{"opaque":7},"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"opaque":7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7,"\\u006fpaque":7,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":"7","extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7.0,"extFields":{"topic":"TopicA"}}',
        b'{"code":105,"opaque":7 ,"extFields":{"topic":"TopicA"}}',
        # So with the topic.
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
def test_nothing_is_learnt_from_what_is_not_plain(text: bytes) -> None:
    request = decode_json_header(text, b"")
    assert isinstance(request, Request)
    assert learn(text, request, LIMITS) is None


def test_a_body_that_looks_like_a_lookup_is_a_body() -> None:
    connection = learnt_from(json_lookup())
    carrier = framed(b'{"code":103,"opaque":3}', json_lookup())
    assert connection.receive(carrier[: -len(json_lookup())]) == []
    assert connection.receive(json_lookup()) == [Request(103, 3, body=json_lookup(), version=0)]


@pytest.mark.parametrize("header_length", [0, 10, 127, 129])
def test_a_lookup_whose_header_ends_elsewhere_is_read_as_by_a_parser(header_length: int) -> None:
    lookup = json_lookup()
    assert_read_alike(lookup, lookup[:4] + header_length.to_bytes(4, "big") + lookup[8:])


def test_a_lookup_that_is_announced_longer_is_waited_for() -> None:
    longer = framed(json_lookup()[8:] + b" ")
    connection = learnt_from(json_lookup())
    assert connection.receive(longer[:-1]) == []
    assert connection.receive(longer[-1:]) == [Request(105, 1, {"topic": "TopicA"})]


def test_a_learnt_form_keeps_to_the_limits() -> None:
    taught = json_lookup("T" * 10)
    limits = FrameLimits(max_frame_bytes=len(taught), max_header_bytes=len(taught) - 8)
    connection = Connection(limits)
    for _ in range(4):
        assert len(connection.receive(taught)) == 1
    (error,) = connection.receive(json_lookup("T" * 11))
    assert isinstance(error, PeerProtocolError)


def test_requests_of_one_connection_share_no_fields() -> None:
    connection = learnt_from(json_lookup())
    first, second = connection.receive(json_lookup() * 2)
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert first.ext is not second.ext
