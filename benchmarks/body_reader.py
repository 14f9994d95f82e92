"""How long does everybody else wait while a broker's registration of 70,000 topics is read?

A task that wants to run twice a millisecond says how long it could not: once while the body is read in the event loop,
once while the reader's child process reads it (the first time with the start of that process). Beside the wall's clock
stands the time that the loop's own thread was at work in the longest wait, which other load on the machine spoils
less.

    .venv/bin/python benchmarks/body_reader.py [--rounds 5]

From the result, 2026-11-18, two shared and busy cores, Python 3.11.7, the loop's own work in the longest wait:

    1,000 topics, JSON          2.2 ms in the loop, 0.3 ms with the reader
    10,000 topics, JSON        29.8 ms in the loop, 1.4 ms with the reader
    70,000 topics, JSON       388.0 ms in the loop, 6.4 ms with the reader
    70,000 topics, compressed 219.7 ms in the loop, 7.7 ms with the reader

The loop reads up to 32 KiB itself: some 150 topics, 0.3 ms, what a body costs it that goes to the child.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from routebook.protocol.request_bodies import RegistrationBody, read_registration_body
from routebook.remoting.body_reader import BodyReader

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.wire_bodies import compressed_body, json_body

SIZES = (100, 1_000, 10_000, 70_000)
LIMIT_BYTES = 16 * 1024 * 1024
PAUSE_S = 0.0005


class Ticker:
    """The longest time between two turns of a task that asks for one all the time."""

    def __init__(self) -> None:
        self.wall_ms = 0.0
        self.work_ms = 0.0

    async def run(self) -> None:
        wall, work = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(PAUSE_S)
            now, worked = time.perf_counter(), time.thread_time()
            self.wall_ms = max(self.wall_ms, (now - wall - PAUSE_S) * 1e3)
            self.work_ms = max(self.work_ms, (worked - work) * 1e3)
            wall, work = now, worked


async def stalls(read: Callable[[], Awaitable[RegistrationBody]]) -> tuple[float, float, float]:
    """Milliseconds: the reading as a whole, the longest wait of the others, the loop's own work in it."""
    ticker = Ticker()
    ticking = asyncio.create_task(ticker.run())
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    await read()
    took = (time.perf_counter() - began) * 1e3
    await asyncio.sleep(0.01)
    ticking.cancel()
    return took, ticker.wall_ms, ticker.work_ms


async def measure(rounds: int) -> None:
    print(f"{'ms, median of ' + str(rounds):34}{'read in':>12}{'others wait':>14}{'of it work':>12}")
    for topics in SIZES:
        for compressed in (False, True):
            body = compressed_body(topics) if compressed else json_body(topics)
            reader = BodyReader()

            async def inline(body: bytes = body, compressed: bool = compressed) -> RegistrationBody:
                return read_registration_body(
                    body, version=513, now_ms=0, compressed=compressed, max_inflated_bytes=LIMIT_BYTES
                )

            async def child(
                body: bytes = body, compressed: bool = compressed, reader: BodyReader = reader
            ) -> RegistrationBody:
                return await reader.read(
                    body,
                    version=513,
                    now_ms=0,
                    compressed=compressed,
                    body_crc32=0,
                    max_inflated_bytes=LIMIT_BYTES,
                )

            what = f"{topics:,} topics, {'compressed' if compressed else 'JSON'} "
            show(what + "first", [await stalls(child)])
            show(what + "loop", [await stalls(inline) for _ in range(rounds)])
            show(what + "reader", [await stalls(child) for _ in range(rounds)])
            await reader.close()


def show(what: str, found: list[tuple[float, float, float]]) -> None:
    took, wall, work = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{what:34}{took:>12.1f}{wall:>14.1f}{work:>12.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    uvloop.run(measure(parser.parse_args().rounds))
