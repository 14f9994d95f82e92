"""Log lines that are never read stop neither the event loop nor the end of the process."""

import fcntl
import logging
import os
import shlex
import sys
import termios
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from routebook.observability.logs import MAX_WAITING_BYTES, BackgroundHandler, suppressed_lines
from tests.runtime.running import Running

PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its two ends. It holds only a few lines."""
    reading, writing = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def record(text: str) -> logging.LogRecord:
    # An administrative action: no other limit applies.
    return logging.LogRecord("routebook.audit", logging.INFO, "", 0, text, (), None)


def read_line(reading: int, rest: bytearray) -> str:
    while b"\n" not in rest:
        rest += os.read(reading, 65536)
    line, _, after = bytes(rest).partition(b"\n")
    rest[:] = after
    return line.decode()


async def test_a_blocked_reader_suppresses_lines_and_is_told(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    before = suppressed_lines()
    written = MAX_WAITING_BYTES // 1000 + 200
    with closing(BackgroundHandler(writing)) as handler:
        for number in range(written):
            handler.handle(record(f"{number} {'x' * 1000}"))
        suppressed = suppressed_lines() - before
        assert 100 < suppressed < 300

        rest = bytearray()
        numbers = [int(read_line(reading, rest).split()[0]) for _ in range(written - suppressed)]
        assert numbers == list(range(written - suppressed))
        handler.handle(record("after"))
        assert read_line(reading, rest).startswith(f"{suppressed} lines were suppressed")
        assert read_line(reading, rest) == "after"


async def test_a_descriptor_that_does_not_block_loses_no_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    with closing(BackgroundHandler(writing)) as handler:
        for number in range(1000):
            handler.handle(record(f"{number} {'x' * 100}"))
        rest = bytearray()
        assert [int(read_line(reading, rest).split()[0]) for _ in range(1000)] == list(range(1000))


async def test_the_last_lines_are_written_before_the_end(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with closing(BackgroundHandler(writing)) as handler:
        handler.handle(record("first"))
        handler.handle(record("last"))
    assert os.read(reading, 1000) == b"first\nlast\n"


async def test_a_worker_whose_lines_nobody_reads_answers_and_stops(store_url: str, tmp_path: Path) -> None:
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    unread = os.open(fifo, os.O_RDWR)
    if sys.platform == "linux":
        fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    program = ("sh", "-c", f'exec "$0" "$@" 2>{shlex.quote(str(fifo))}', sys.executable, "-m", "routebook")
    with Running("serve", "--redis-url", store_url, folder=tmp_path, program=program) as service:
        async with httpx.AsyncClient(base_url=service.http, trust_env=False, timeout=10) as client:
            for number in range(100):
                broker = {"address": f"127.0.3.{number + 1}:10911", "topics": {"orders": {}}}
                (await client.put(f"/v1/clusters/east/brokers/b{number}/0", json=broker)).raise_for_status()
            assert len((await client.get("/v1/routes/orders")).json()["brokerDatas"]) == 100
        assert waiting_bytes(unread) > PIPE_BYTES // 2, "the lines fill the pipe"
        assert service.stop(within=20) == 0
    os.close(unread)


async def test_a_worker_without_standard_error_serves(store_url: str, tmp_path: Path) -> None:
    program = ("sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, "-m", "routebook")
    with Running("serve", "--redis-url", store_url, folder=tmp_path, program=program) as service:
        service.register("broker-a", "orders")
        assert service.get("/v1/routes/orders").status_code == 200
        assert service.stop(within=20) == 0


def waiting_bytes(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
