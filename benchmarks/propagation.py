"""How soon does a second worker show a change, and how much memory does a worker use, with 1,000 brokers x 100 topics?

Two `routebook serve` run on one store. All brokers register through the HTTP API of the first worker. Then one broker
after the other changes a topic there, while a watch on the second worker shows when the change arrives.

    .venv/bin/python -m benchmarks.propagation
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from routebook.store.embedded import EmbeddedStore

GOAL_MS = 100.0


class Served:
    """One `routebook serve` with free ports."""

    def __init__(self, store_url: str) -> None:
        command = [sys.executable, "-m", "routebook", "serve", "--redis-url", store_url, "--bind-address", "127.0.0.1"]
        command += ["--http-port", "0", "--admin-port", "0", "--remoting-port", "0", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self._first_address()

    def _first_address(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://[0-9.]+:\d+", line):
                return found[0]
        raise SystemExit("routebook serve did not say where it listens")

    @property
    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def body(broker: int, topics: int, counter: int, changed: int | None = None) -> dict[str, Any]:
    queues = {
        f"team-{broker:04d}-topic-{n:03d}": {"read_queues": 8 + (n == changed) * counter, "write_queues": 8}
        for n in range(topics)
    }
    return {
        "address": f"127.0.{broker // 250}.{broker % 250}:10911",
        "topics": queues,
        "data_version": {"counter": counter, "timestamp": 1},
        "timeout_ms": 600_000,
    }


async def put(client: httpx.AsyncClient, broker: int, fields: dict[str, Any]) -> int:
    answer = await client.put(f"/v1/clusters/bench/brokers/broker-{broker:04d}/0", json=fields)
    answer.raise_for_status()
    return int(answer.json()["version"])


async def fill(client: httpx.AsyncClient, brokers: int, topics: int) -> float:
    began = time.perf_counter()
    numbers = iter(range(brokers))

    async def register_some() -> None:
        for broker in numbers:
            await put(client, broker, body(broker, topics, 1))

    await asyncio.gather(*(register_some() for _ in range(8)))
    return time.perf_counter() - began


async def watch(url: str, arrived: dict[str, float], ready: asyncio.Event) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client, client.stream("GET", "/v1/watch") as events:
        ready.set()
        async for line in events.aiter_lines():
            if line.startswith("data:"):
                topic = json.loads(line[5:]).get("topic", "")
                arrived.setdefault(topic, time.perf_counter())


async def measure(first: Served, second: Served, brokers: int, topics: int, changes: int) -> None:
    limits = httpx.Limits(max_connections=16)
    async with httpx.AsyncClient(base_url=first.url, timeout=30, limits=limits) as client:
        empty = first.resident_mib
        seconds = await fill(client, brokers, topics)
        print(f"registered {brokers} brokers x {topics} topics in {seconds:.1f} s ({brokers / seconds:.0f}/s)")
        arrived: dict[str, float] = {}
        ready = asyncio.Event()
        watching = asyncio.create_task(watch(second.url, arrived, ready))
        await ready.wait()
        await asyncio.sleep(1)
        sent: dict[str, float] = {}
        answered: dict[str, float] = {}
        for counter, broker in enumerate(random.sample(range(brokers), min(changes, brokers)), 2):
            topic = f"team-{broker:04d}-topic-000"
            sent[topic] = time.perf_counter()
            await put(client, broker, body(broker, topics, counter, changed=0))
            answered[topic] = time.perf_counter()
        await asyncio.sleep(1)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        report("write answered after", [(answered[t] - sent[t]) * 1000 for t in sent])
        seen = [(arrived[t] - sent[t]) * 1000 for t in sent if t in arrived]
        p99 = report("seen by the second worker's watch after", seen)
        print(f"lost: {len(sent) - len(seen)}; goal p99 <= {GOAL_MS:.0f} ms: {'met' if p99 <= GOAL_MS else 'MISSED'}")
        print(
            f"memory of a worker: {empty:.0f} MiB empty, {first.resident_mib:.0f} MiB with this table (the one written"
        )
        print(f"to), {second.resident_mib:.0f} MiB (the other)")


def report(what: str, values: list[float]) -> float:
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {ordered[-1]:.1f} ms ({len(ordered)} changes)")
    return p99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    given = parser.parse_args()
    with EmbeddedStore(None, port=0) as store:
        first, second = Served(store.url), Served(store.url)
        try:
            asyncio.run(measure(first, second, given.brokers, given.topics, given.changes))
        finally:
            first.stop()
            second.stop()


if __name__ == "__main__":
    main()
