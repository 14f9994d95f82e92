"""Bytes in, events out: chunks, refusals, requests and their responses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.protocol.connection import Connection, Event
from routebook.protocol.frame import (
    FrameLimits,
    HeaderEncoding,
    OwnProtocolError,
    PeerProtocolError,
    Request,
    RequestCode,
    Response,
    ResponseCode,
    Violation,
)
from routebook.protocol.headers import encode_command
from tests.protocol.golden_frames import golden_frames
from tests.protocol.plain_frames import binary_header, framed, json_lookup, split

USUAL = FrameLimits()
STREAM = b"".join(golden_frames()[name] for name in sorted(golden_frames()))
"""Requests in both encodings, with and without bodies, and responses to no request."""


def events_of(pieces: list[bytes], limits: FrameLimits = USUAL) -> list[Event]:
    connection = Connection(limits)
    return [event for piece in pieces for event in connection.receive(piece)]


WHOLE = events_of([STREAM])


def refusal(data: bytes, limits: FrameLimits = USUAL) -> Violation:
    """The violation that is found: the same for one chunk and for single bytes, and final."""
    found = set()
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        connection = Connection(limits)
        events = [event for piece in pieces for event in connection.receive(piece)]
        (error,) = events
        assert isinstance(error, PeerProtocolError)
        assert connection.error is error
        assert connection.receive(json_lookup()) == []
        assert connection.unread_bytes == 0
        found.add(error.violation)
    (violation,) = found
    return violation


def test_the_stream_holds_all_requests_of_the_examples() -> None:
    assert [event.code for event in WHOLE if isinstance(event, Request)] == [105, 905, 322, 105, 103, 904, 1234]
    assert len(WHOLE) == 7


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=60))
def test_any_split_gives_the_same_requests(cuts: list[int]) -> None:
    assert events_of(split(STREAM, cuts)) == WHOLE


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 1000])
def test_pieces_of_one_size_give_the_same_requests(size: int) -> None:
    assert events_of([STREAM[at : at + size] for at in range(0, len(STREAM), size)]) == WHOLE


def test_an_empty_piece_changes_nothing() -> None:
    lookup = json_lookup()
    assert events_of([b"", lookup[:10], b"", lookup[10:], b""]) == [Request(105, 1, {"topic": "TopicA"})]


def test_the_bytes_of_an_incomplete_frame_are_counted() -> None:
    connection = Connection()
    lookup = json_lookup()
    assert connection.unread_bytes == 0
    connection.receive(lookup + lookup[:3])
    assert connection.unread_bytes == 3
    connection.receive(lookup[3:50])
    assert connection.unread_bytes == 50
    connection.receive(lookup[50:])
    assert connection.unread_bytes == 0


@pytest.mark.parametrize("length", [2**31 - 1, 2**30, 16_777_213, -1, -(2**31), 0, 1, 3])
def test_an_impossible_length_is_refused_on_four_bytes(length: int) -> None:
    assert refusal(length.to_bytes(4, "big", signed=True)) is Violation.FRAME_LENGTH


def test_the_largest_frame_is_accepted() -> None:
    connection = Connection()
    assert connection.receive((16_777_212).to_bytes(4, "big")) == []
    assert connection.error is None


def test_the_limit_is_a_parameter_and_counts_the_whole_frame() -> None:
    lookup = json_lookup()
    assert len(events_of([lookup], FrameLimits(max_frame_bytes=len(lookup)))) == 1
    assert refusal(lookup[:4], FrameLimits(max_frame_bytes=len(lookup) - 1)) is Violation.FRAME_LENGTH
    large = FrameLimits(max_frame_bytes=64 * 1024 * 1024)
    (event,) = events_of([framed(b'{"code":103}', bytes(20_000_000))], large)
    assert isinstance(event, Request)
    assert len(event.body) == 20_000_000


@pytest.mark.parametrize("excess", [1, 100, 2**24 - 1 - 128])
def test_a_header_longer_than_its_frame_is_refused_on_eight_bytes(excess: int) -> None:
    prefix = (132).to_bytes(4, "big") + (128 + excess).to_bytes(4, "big")
    assert refusal(prefix) is Violation.HEADER_LENGTH


def test_a_header_beyond_its_own_limit_is_refused_on_eight_bytes() -> None:
    announced = (2**21).to_bytes(4, "big") + (2**17 + 1).to_bytes(4, "big")
    assert refusal(announced) is Violation.HEADER_LENGTH


@pytest.mark.parametrize("encoding", [2, 3, 127, 128, 255])
def test_an_unknown_serialization_is_refused_on_eight_bytes(encoding: int) -> None:
    assert refusal((132).to_bytes(4, "big") + bytes([encoding, 0, 0, 128])) is Violation.SERIALIZATION


@pytest.mark.parametrize(
    ("frame", "violation"),
    [
        (framed(b""), Violation.JSON_HEADER),
        (framed(b"null"), Violation.JSON_HEADER),
        (framed(b"not json", b"body"), Violation.JSON_HEADER),
        (framed(b"", encoding=1), Violation.BINARY_HEADER),
        (framed(binary_header()[:-1], encoding=1), Violation.BINARY_HEADER),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(frame: bytes, violation: Violation) -> None:
    assert refusal(frame) is violation


def test_requests_before_an_invalid_frame_are_delivered() -> None:
    good, bad, late = events_of([json_lookup(opaque=5) + json_lookup(opaque=6) + framed(b"?") + json_lookup()])
    assert isinstance(good, Request)
    assert isinstance(bad, Request)
    assert (good.opaque, bad.opaque) == (5, 6)
    assert isinstance(late, PeerProtocolError)


def test_the_same_opaque_twice_is_two_requests() -> None:
    assert len(events_of([json_lookup(opaque=9) * 2])) == 2


@pytest.mark.parametrize("flag", [1, 3])
def test_a_response_to_no_request_is_dropped(flag: int) -> None:
    assert events_of([framed(b'{"flag":%d,"opaque":0}' % flag)]) == []


def test_a_response_is_delivered_once() -> None:
    client, server = Connection(), Connection()
    opaque, sent = client.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    other, also_sent = client.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    first, second = server.receive(sent + also_sent)
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    answers = server.answer(second, ResponseCode.SUCCESS, body=b"2") + server.answer(first, ResponseCode.SUCCESS)
    assert client.receive(answers) == [Response(0, other, body=b"2"), Response(0, opaque)]
    assert client.receive(answers) == []


def test_a_response_to_an_abandoned_request_is_dropped() -> None:
    connection = Connection()
    opaque, _ = connection.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    connection.abandon_request(opaque)
    assert connection.receive(encode_command(Response(0, opaque))) == []


def test_a_oneway_request_awaits_no_response() -> None:
    connection, peer = Connection(), Connection()
    (request,) = peer.receive(
        connection.oneway_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext={"minBrokerId": "0"})
    )
    assert isinstance(request, Request)
    assert request.is_oneway
    assert connection.receive(encode_command(Response(0, request.opaque))) == []


def test_a_frame_that_peers_would_refuse_is_our_own_error() -> None:
    connection = Connection(FrameLimits(max_frame_bytes=1_000))
    (request,) = connection.receive(json_lookup())
    assert isinstance(request, Request)
    with pytest.raises(OwnProtocolError):
        connection.answer(request, ResponseCode.SUCCESS, body=bytes(1_000))
    with pytest.raises(OwnProtocolError):
        connection.answer_in_parts(request, ResponseCode.SUCCESS, bytes(1_000))
    with pytest.raises(OwnProtocolError):
        connection.request(RequestCode.REGISTER_BROKER, body=bytes(1_000))
    assert connection.answer(request, ResponseCode.SYSTEM_ERROR, remark="answer too large") != b""


def test_the_version_of_our_answers_can_be_set() -> None:
    connection = Connection(version=513, encoding=HeaderEncoding.JSON)
    (request,) = connection.receive(json_lookup())
    assert isinstance(request, Request)
    assert b'"version":513}' in connection.answer(request, ResponseCode.SUCCESS)
