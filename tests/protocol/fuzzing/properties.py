"""The properties that hold for any input. Each function makes an input from a source of randomness, and returns whether
any of it was accepted: a fuzzer whose inputs are all refused at once finds nothing.
"""

import random
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from routebook.model.broker import QueueData
from routebook.protocol.body_json import BodyError, read_data_version, read_queue_datas
from routebook.protocol.connection import Connection, Event
from routebook.protocol.frame import FrameLimits, HeaderEncoding, PeerProtocolError, Request
from routebook.protocol.opening import Opening
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import NOW_MS
from tests.protocol.fuzzing import bodies, frames
from tests.protocol.plain_frames import json_lookup
from tests.protocol.template_reading import read_with_template

SMALL: Final = FrameLimits(frames.LARGEST_FRAME, frames.LARGEST_HEADER)
VERSIONS: Final = [-1, 0, 36, 37, 412, 413, 513]
MAX_INFLATED_BYTES: Final = 64 * 1024

_Body = TypeVar("_Body")
Read = Callable[[Connection, bytes], list[Event]]
Outcome = list[Event | str]
"""Errors as texts, so that equal ones compare equal."""


def check_stream(source: random.Random) -> bool:
    """Any chunks give the same events, with and without the template. An error is the last event, and nothing is read
    or kept after it.
    """
    data = frames.stream(source)
    whole = outcome_of([data])
    pieces = frames.pieces_of(source, data)
    assert outcome_of(pieces) == whole, "other chunks give other events"
    assert outcome_of(pieces, read=read_with_template) == whole, "the template gives other events"
    return any(isinstance(event, Request) for event in whole)


def outcome_of(pieces: Iterable[bytes], *, read: Read = Connection.receive) -> Outcome:
    connection = Connection(SMALL)
    events: list[Event] = []
    for piece in pieces:
        received = read(connection, piece)
        assert not (events and isinstance(events[-1], PeerProtocolError) and received), "read on after an error"
        assert connection.unread_bytes <= SMALL.max_frame_bytes
        events += received
    failed = [isinstance(event, PeerProtocolError) for event in events]
    assert not any(failed[:-1]), "an error is not the last event"
    assert (connection.error is not None) == any(failed)
    if connection.error:
        assert connection.receive(json_lookup()) == []
        assert connection.unread_bytes == 0
    for event in events:
        if isinstance(event, Request):
            answer_to(event)
    return [f"{event.violation}: {event}" if isinstance(event, PeerProtocolError) else event for event in events]


def answer_to(request: Request) -> None:
    """A request that was read can be answered, and its texts can be stored."""
    for name, value in (request.ext or {}).items():
        name.encode()
        value.encode()
    for encoding in HeaderEncoding:
        connection = Connection(SMALL, encoding=encoding)
        assert bool(connection.answer(request, 3, remark=f"{request.code}")) != request.is_oneway


def check_beginning(source: random.Random) -> bool:
    data, accepts_proxy = frames.beginning(source), source.random() < 0.8
    whole = opened_by([data], accepts_proxy=accepts_proxy)
    assert opened_by(frames.pieces_of(source, data), accepts_proxy=accepts_proxy) == whole, (
        "other chunks open it differently"
    )
    return any(isinstance(event, Request) for event in whole)


def opened_by(pieces: list[bytes], *, accepts_proxy: bool) -> Outcome:
    """As a port does: the first bytes, then the events."""
    opening = Opening(SMALL, accepts_proxy=accepts_proxy)
    for at, piece in enumerate(pieces):
        try:
            opened = opening.receive(piece)
        except PeerProtocolError as error:
            return [f"{error.violation}: {error}"]
        if opened:
            assert opened.rest
            rest = [opened.rest, *pieces[at + 1 :]]
            if opened.is_tls:
                return ["TLS", repr(opened.proxy), b"".join(rest).hex()]
            events = outcome_of(rest)
            # An impossible length is refused by the first bytes, or by the first frame.
            return events if opened.proxy is None else [repr(opened.proxy), *events]
    return []


def check_registration(source: random.Random) -> bool:
    """As JSON and as a compressed body, whichever it is."""
    body, version = bodies.body(source, bodies.REGISTRATIONS), source.choice(VERSIONS)
    forms = [
        taken_body(
            lambda form=form: read_registration_body(  # type: ignore[misc]
                body, version=version, now_ms=NOW_MS, compressed=form, max_inflated_bytes=MAX_INFLATED_BYTES
            )
        )
        for form in (False, True)
    ]
    for decoded in forms:
        if decoded:
            check_texts([*decoded.topics, *decoded.mappings, *(decoded.filters or ())])
            check_queues(decoded.topics.values())
    return any(forms)


def check_data_version(source: random.Random) -> bool:
    body = bodies.body(source, bodies.DATA_VERSIONS)
    return taken_body(lambda: read_data_version(body, now_ms=NOW_MS)) is not None


def check_queue_datas(source: random.Random) -> bool:
    body = bodies.body(source, bodies.ROUTES)
    decoded = taken_body(lambda: read_queue_datas(body)) or ()
    check_texts(broker for broker, _ in decoded)
    check_queues(queue for _, queue in decoded)
    return bool(decoded)


def taken_body(read: Callable[[], _Body]) -> _Body | None:
    try:
        return read()
    except BodyError as error:
        refusal = error
    assert refusal.remark
    return None


def check_texts(texts: Iterable[str]) -> None:
    """Halves of surrogate pairs cannot be stored."""
    for text in texts:
        text.encode()


def check_queues(queues: Iterable[QueueData]) -> None:
    for queue in queues:
        for number in (queue.read_queues, queue.write_queues, queue.perm, queue.flags):
            assert -(2**31) <= number < 2**31


CHECKS: Final[dict[str, tuple[Callable[[random.Random], bool], int]]] = {
    "Connection.receive": (check_stream, 9),
    "Opening": (check_beginning, 2),
    "read_registration_body": (check_registration, 6),
    "read_data_version": (check_data_version, 1),
    "read_queue_datas": (check_queue_datas, 2),
}
"""Each check, with its number of turns out of twenty."""
