"""Lookups from a process of their own, so that the work of the attackers does not lengthen what they measure."""

import asyncio
import json
import sys
import time
from types import TracebackType
from typing import Self

from tests.remoting.port import lookup
from tests.support.peers import Peer

PAUSE_S = 0.002


class Lookups:
    """Looks a topic up every few milliseconds, and keeps the codes of the answers and how long they took."""

    def __init__(self, address: str, topic: str) -> None:
        self._program = (sys.executable, "-m", "tests.attacks.lookups", address, topic)
        self.codes: set[int] = set()
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._program, stdin=pipe, stdout=pipe)
        await self._read_line()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        await self._process.wait()

    async def run(self, seconds: float) -> float:
        """Returns the 99th percentile of the latency in this time."""
        assert self._process.stdin
        self._process.stdin.write(f"{seconds}\n".encode())
        found = json.loads(await self._read_line())
        self.codes.update(found["codes"])
        self.longest = found["longest"]
        return float(found["p99"])

    async def _read_line(self) -> bytes:
        assert self._process.stdout
        line = await self._process.stdout.readline()
        assert line, "the process of the lookups has ended"
        return line


async def look_up(address: str, topic: str) -> None:
    async with await Peer.connect(address) as peer:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            codes: set[int] = set()
            waits: list[float] = []
            end = time.monotonic() + float(line)
            while time.monotonic() < end:
                began = time.perf_counter()
                codes.add((await lookup(peer, topic)).code)
                waits.append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE_S)
            waits.sort()
            print(
                json.dumps({"codes": [*codes], "p99": waits[int(len(waits) * 0.99)], "longest": waits[-1]}), flush=True
            )


if __name__ == "__main__":
    asyncio.run(look_up(*sys.argv[1:]))
