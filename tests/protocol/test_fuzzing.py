"""Random and corrupted bytes raise only our errors, take little time, and keep no memory beyond the limit.

A part of what `python -m tests.protocol.fuzzing` does a million times, and the largest inputs of the worst kinds.
"""

import gc
import re
import time
import tracemalloc

import pytest

from routebook.protocol import headers
from routebook.protocol.connection import Connection
from tests.protocol.fuzzing.run import FoundError, Report, check_one, fuzz
from tests.protocol.plain_frames import framed

LONGEST_STALL_SECONDS = 0.05
HANG_MS = 2_000
"""No input has more than some ten KiB, so only quadratic time exceeds this. A garbage collection, which may happen
during any input, takes longer than the input itself.
"""
KIB = 1024
MIB = KIB * KIB


def check_report(report: Report) -> None:
    for name, target in report.targets.items():
        assert target.accepted > target.inputs // 50, f"{name}: the fuzzer no longer gets beyond the refusals"
        assert target.worst_ms < HANG_MS, f"{name}: input {target.worst_input} hangs"


def test_corrupted_inputs_raise_only_our_errors_and_read_the_same_in_any_pieces() -> None:
    check_report(fuzz(seed=20_260, inputs=10_000))


@pytest.mark.slow
def test_twenty_seconds_of_corrupted_inputs_keep_no_memory() -> None:
    report = fuzz(seed=20_261, inputs=1_000_000, seconds=20)
    check_report(report)
    assert report.growth_bytes < 16 * MIB


def test_a_violated_property_is_found_and_can_be_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_check", lambda *_: None)
    with pytest.raises(FoundError, match="error: unpack_from requires") as found:
        fuzz(seed=5, inputs=1_000)
    again = re.search(r"--seed 5 --only (\d+)", str(found.value))
    assert again
    with pytest.raises(FoundError, match="error: unpack_from requires"):
        check_one(5, int(again[1]))


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


def test_an_idle_connection_keeps_no_memory_of_its_last_frame() -> None:
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


def test_a_refused_connection_keeps_no_memory() -> None:
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
def test_the_largest_header_of_the_worst_kind_needs_little_time_and_memory(header: bytes) -> None:
    assert len(header) <= LARGEST
    frame = framed(header)
    gc.collect()
    start = time.thread_time()
    Connection().receive(frame)
    assert time.thread_time() - start < LONGEST_STALL_SECONDS
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
    start = time.thread_time()
    events = [event for piece in pieces for event in connection.receive(piece)]
    assert len(events) == 1
    assert time.thread_time() - start < 1.0
