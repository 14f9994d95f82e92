"""Open consoles: each has a stream of events, and reads its page again when an event concerns it, as the script of a
page does. They run in a process of their own, which `Consoles` controls.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from html import unescape
from types import TracebackType
from typing import Any, Self

_FOLLOW = re.compile(rb'<main [^>]*data-follow="([^"]*)"')


class Consoles:
    """`with Consoles(port, paths): …` opens one console for each path, and closes them at the end."""

    def __init__(self, port: int, paths: list[str]) -> None:
        self._port = port
        self._paths = paths
        self.pages = 0
        """Pages that all of them read while they were open."""

    def __enter__(self) -> Self:
        # At the lowest priority, so that the consoles do not take the processor from the worker and the lookups.
        command = ["nice", "-n", "19", sys.executable, "-m", __spec__.name, str(self._port), *self._paths]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "open\n":
            raise SystemExit("The consoles could not be opened.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        output, _ = self._process.communicate("\n", timeout=60)
        self.pages = int(output)


class _Console:
    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._follow: dict[str, Any] = {}
        self._pace_s = 0.25
        self._wants_page = asyncio.Event()
        self.is_open = asyncio.Event()
        self.pages = 0

    async def run(self) -> None:
        await self._read_page()
        self.pages = 0
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events())
            group.create_task(self._read_pages())
            if every_ms := self._follow.get("every_ms"):
                group.create_task(self._want_a_page_every(every_ms / 1000))

    async def _want_a_page_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(self._until_turn(seconds))
            self._wants_page.set()

    def _until_turn(self, period_s: float) -> float:
        """As `untilTurn` in the script of the pages: consoles of the same page read it at the same time."""
        phase = 0
        for letter in self._path:
            phase = (phase * 31 + ord(letter)) % 65521
        left = period_s - (time.time() + phase / 1000) % period_s
        return left + period_s if left < 0.25 else left

    async def _read_pages(self) -> None:
        while True:
            await self._wants_page.wait()
            self._wants_page.clear()
            await self._read_page()
            await asyncio.sleep(self._until_turn(self._pace_s) if self._pace_s > 1 else self._pace_s)

    async def _read_page(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=8 * 1024 * 1024)
        writer.write(_request(self._path, "X-Routebook-Part: main\r\nConnection: close\r\n"))
        answer = await reader.read(-1)
        writer.close()
        if b" 200 " not in answer[:20]:
            raise SystemExit(f"{self._path}: {answer[:300]!r}")
        if found := _FOLLOW.search(answer):
            self._follow = json.loads(unescape(found[1].decode()))
        self.pages += 1

    async def _follow_events(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(_request("/console/events", ""))
        async for name, data in _events(reader):
            self.is_open.set()
            self._pace_s = data.get("pace_ms", self._pace_s * 1000) / 1000
            if name == "change" and self._is_concerned(data):
                self._wants_page.set()
        raise SystemExit("The worker ended a stream.")

    def _is_concerned(self, change: dict[str, Any]) -> bool:
        """As `concerns` in the script of the pages."""
        wanted = self._follow
        named = any(set(wanted.get(key, ())) & set(change[key]) for key in ("kinds", "brokers", "topics"))
        return "all" in wanted or named or (change["all"] and bool(wanted))


def _request(path: str, headers: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    while line := await reader.readline():
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


async def _main(port: int, paths: list[str]) -> None:
    consoles = [_Console(port, path) for path in paths]
    running = [asyncio.create_task(console.run()) for console in consoles]
    for console, task in zip(consoles, running, strict=True):
        opened = asyncio.create_task(console.is_open.wait())
        await asyncio.wait({opened, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(sum(console.pages for console in consoles), flush=True)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2:]))
