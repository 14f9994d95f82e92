"""Random and mutated bytes: nothing is raised, nothing stalls, nothing is kept beyond the limit.

The seed is fixed: a failure here fails everywhere. FUZZ_INPUTS asks for more than the default run takes.
"""

import gc
import os
import random
import time
import tracemalloc

import pytest

from routebook.wire.command import Request
from routebook.wire.connection import Connection
from routebook.wire.frame import FrameLimits
from routebook.wire.opening import Opening
from routebook.wire.protocol_error import PeerProtocolError
from tests.wire.golden_frames import golden_frames
from tests.wire.plain_frames import binary_header, framed

INPUTS = int(os.environ.get("FUZZ_INPUTS", "20000"))
SMALL = FrameLimits(max_frame_bytes=4096, max_header_bytes=2048)
PROXY = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n"
PROXY_V2 = bytes.fromhex("0d0a0d0a000d0a515549540a2111000cc0000207c6336401dc042694")
SEEDS = [*golden_frames().values(), PROXY, PROXY_V2, PROXY_V2 + golden_frames()["E1"]]
INTERESTING = [0, 1, 3, 4, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1]
LONGEST_STALL_SECONDS = 0.05
KIB = 1024
MIB = KIB * KIB


def mutated(source: random.Random) -> bytes:
    data = bytearray(source.choice(SEEDS))
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data) + 1)
        match source.randrange(7):
            case 0:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                data[at : at + 4] = source.choice(INTERESTING).to_bytes(4, "big")
            case 2:
                del data[at : at + source.randint(1, 20)]
            case 3:
                data[at:at] = source.randbytes(source.randint(1, 20))
            case 4:
                data[at:at] = source.choice(SEEDS)
            case 5:
                data[at:at] = source.choice(
                    [b"[", b'{"a":', b'"', b"\\u", b"\\ud800", b"1e9", b"null"]
                ) * source.randint(1, 50)
            case _:
                data[:4] = (len(data) - 4).to_bytes(4, "big", signed=True)
    return bytes(data)


def pieces_of(source: random.Random, data: bytes) -> list[bytes]:
    if source.random() < 0.5:
        return [data]
    size = source.randint(1, 50)
    return [data[at : at + size] for at in range(0, len(data), size)]


def run_through(source: random.Random, data: bytes) -> int:
    """As a port would; how many requests came out."""
    opening = Opening(SMALL, accepts_proxy=source.random() < 0.5)
    connection = Connection(SMALL)
    opened = None
    requests = 0
    for piece in pieces_of(source, data):
        if not opened:
            try:
                opened = opening.receive(piece)
            except PeerProtocolError:
                return requests
            if not opened or opened.is_tls:
                continue
            events = connection.receive(opened.rest)
        else:
            events = connection.receive(piece)
        assert connection.unread_bytes <= SMALL.max_frame_bytes
        requests += sum(isinstance(event, Request) for event in events)
        assert all(not isinstance(event, PeerProtocolError) for event in events[:-1])
        for event in events:
            if isinstance(event, Request):
                connection.answer(event, 3, remark=f" request type {event.code} not supported", ext=event.ext)
        if connection.error:
            break
    return requests


def fuzzed(source: random.Random) -> bytes:
    kind = source.randrange(10)
    if kind == 0:
        return source.randbytes(source.randint(0, 300))
    if kind == 1:
        return framed(source.randbytes(source.randint(0, 200)), source.randbytes(10), source.randrange(3))
    if kind == 2:
        header = bytearray(binary_header(ext=[(b"topic", b"TopicA"), (b"", b"x")], remark=source.randbytes(5)))
        header[source.randrange(len(header))] = source.choice([0, 1, 127, 128, 255])
        return framed(bytes(header), b"body", 1)
    return mutated(source)


def test_no_bytes_raise_anything_or_stall() -> None:
    source = random.Random(20_260)
    requests, slowest = 0, 0.0
    for _ in range(INPUTS):
        data = fuzzed(source)
        begun = time.thread_time()
        requests += run_through(source, data)
        slowest = max(slowest, time.thread_time() - begun)
    assert requests > INPUTS // 20, "the fuzzer no longer gets beyond the refusals"
    assert slowest < LONGEST_STALL_SECONDS


def test_announced_bytes_are_not_allocated() -> None:
    tracemalloc.start()
    try:
        connections = [Connection() for _ in range(100)]
        for connection in connections:
            connection.receive((16_777_212).to_bytes(4, "big") + (2**17).to_bytes(4, "big") + b"{")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(connection.unread_bytes == 9 for connection in connections)
    assert peak < 1_000_000


def test_an_idle_connection_keeps_nothing_of_its_last_frame() -> None:
    connection = Connection()
    tracemalloc.start()
    try:
        for size in (64 * KIB, 8 * MIB):
            frame = framed(b'{"code":103}', bytes(8 * MIB - KIB))
            events = [event for at in range(0, len(frame), size) for event in connection.receive(frame[at : at + size])]
            assert len(events) == 1
            del frame, events
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_a_refused_connection_keeps_nothing() -> None:
    connection = Connection()
    junk = framed(b"?" * 125_000)
    tracemalloc.start()
    try:
        for at in range(0, len(junk), 65_536):
            connection.receive(junk[at : at + 65_536])
        assert connection.error is not None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


LARGEST = 128 * KIB


@pytest.mark.parametrize(
    "header",
    [
        b"[" * LARGEST,
        b"[" + b"[]," * (LARGEST // 3 - 2) + b"[]]",
        b"{" + b'"":{},' * (LARGEST // 6 - 2) + b'"":{}}',
        b'{"code":' + b"9" * (LARGEST - 20) + b"}",
        b'{"code":0.' + b"9" * (LARGEST - 20) + b"}",
        b'{"x":[' + (b"9" * 4000 + b",") * (LARGEST // 4001 - 2) + b"1]}",
        b'{"extFields":{"x":[' + b"1," * (LARGEST // 2 - 20) + b"1]}}",
        b'{"remark":"' + b"\\ud800" * (LARGEST // 6 - 10) + b'"}',
        b'{"code":"' + b"9" * (LARGEST - 20) + b'"}',
        b'{"x":[' + b"[{}]," * (LARGEST // 5 - 3) + b"1]}",
        b'{"extFields":{"x":[' + b"0.1," * (LARGEST // 4 - 20) + b"1]}}",
        b" " * LARGEST,
    ],
    ids=lambda header: repr(header[:20]),
)
def test_the_largest_header_of_the_worst_kind_neither_stalls_nor_fills_the_memory(header: bytes) -> None:
    assert len(header) <= LARGEST
    frame = framed(header)
    gc.collect()
    begun = time.thread_time()
    Connection().receive(frame)
    assert time.thread_time() - begun < LONGEST_STALL_SECONDS
    tracemalloc.start()
    try:
        Connection().receive(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MIB


def test_a_large_frame_in_small_pieces_takes_linear_time() -> None:
    frame = framed(b'{"code":103}', bytes(4 * MIB))
    pieces = [frame[at : at + 64] for at in range(0, len(frame), 64)]
    connection = Connection()
    begun = time.thread_time()
    events = [event for piece in pieces for event in connection.receive(piece)]
    assert len(events) == 1
    assert time.thread_time() - begun < 1.0
