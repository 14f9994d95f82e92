"""Lookups from a process of their own, so that the work of the test does not delay them.

    python -m tests.faults.latencies HOST:PORT TOPIC

It looks the topic up some 200 times a second over one connection, until its standard input ends. For each line `begin`
it starts a window, and for each line `end` it prints the latencies of the window in milliseconds, and the codes.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.architecture.sources import ROOT
from tests.faults.laboratory import percentile
from tests.support.peers import Peer

PAUSE_S = 0.005


@dataclass(frozen=True)
class Window:
    milliseconds: list[float]
    codes: dict[str, int]

    @property
    def p99_ms(self) -> float:
        return percentile(self.milliseconds, 99)


class Lookups:
    """The process, seen from the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begin(self) -> None:
        await self._say("begin")

    async def end(self) -> Window:
        await self._say("end")
        assert self._process.stdout
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        return Window(**json.loads(line))

    async def window(self, seconds: float) -> Window:
        await self.begin()
        await asyncio.sleep(seconds)
        return await self.end()

    async def _say(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()


@asynccontextmanager
async def looking_up(address: str, topic: str) -> AsyncIterator[Lookups]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.faults.latencies", address, topic),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield Lookups(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _main(address: str, topic: str) -> None:
    milliseconds: list[float] = []
    codes: dict[str, int] = {}
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)

    async def look_up() -> None:
        async with await Peer.connect(address) as peer:
            while True:
                began = time.perf_counter()
                answer = await peer.ask(105, {"topic": topic})
                milliseconds.append((time.perf_counter() - began) * 1000)
                codes[str(answer.code)] = codes.get(str(answer.code), 0) + 1
                await asyncio.sleep(PAUSE_S)

    task = asyncio.create_task(look_up())
    while line := (await stdin.readline()).strip():
        if task.done():
            task.result()
        if line == b"end":
            print(json.dumps({"milliseconds": milliseconds, "codes": codes}), flush=True)
        milliseconds.clear()
        codes.clear()
    task.cancel()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
