"""Fills a stream with synthetic entries, reads it with the fastest possible loop in Python, and takes times."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from benchmarks.history.synthetic import FIRST_MS, NAMESPACE

KEY = f"rb:{{{NAMESPACE}}}:changes"
AT_ONCE = 10_000
CHUNK = 5_000


def connect(url: str) -> redis.Redis:
    client = redis.Redis.from_url(url, protocol=2)
    # By default redis-py converts every entry to a tuple, which halves the speed.
    client.set_response_callback("XRANGE", lambda reply, **_: reply)
    return client


def payload_of(version: int) -> bytes:
    group = version * 7919 % 2000
    where = {"cluster": f"cluster-{group % 6}", "broker": f"broker-{group:05}", "actor": "worker-1"}
    if version % 3:
        topic = {"t": f"topic-{version * 104729 % 20000:05}", "r": 8, "w": 8, "p": 6, "f": 0}
        entry = {"v": 1, "kind": "queues-changed", **where, "cause": "registration", "queues": [topic]}
    else:
        seat = {"id": 0, "addr": f"127.0.0.{group % 250 + 1}:10911", "incarnation": f"{version:016x}", "first": False}
        entry = {"v": 1, "kind": "broker-registered", **where, **seat, "timeout_ms": 120000, "queues": []}
    return json.dumps(entry, separators=(",", ":")).encode()


def fill(url: str, entries: int, *, first: int = 1) -> None:
    client = connect(url)
    for start in range(first, first + entries, AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for version in range(start, min(start + AT_ONCE, first + entries)):
            pipeline.xadd(KEY, {"d": payload_of(version)}, id=f"{FIRST_MS + version}-{version}")
        pipeline.execute()
    client.close()


def loop(url: str) -> int:
    """Reads every entry once, chunk by chunk, and returns the number of entries."""
    client: Any = connect(url)
    found, place = 0, b"-"
    while chunk := client.xrange(KEY, min=place, count=CHUNK):
        found += len(chunk)
        place = b"(" + chunk[-1][0]
    client.close()
    return found


def bytes_in_store(url: str) -> int:
    client: Any = connect(url)
    try:
        return int(client.memory_usage(KEY, samples=0))
    finally:
        client.close()


def best_of(rounds: int, *jobs: Any) -> list[float]:
    """The seconds of each job in its best round. The jobs alternate, because the machine may be shared."""
    best = [float("inf")] * len(jobs)
    for _ in range(rounds):
        for number, job in enumerate(jobs):
            started = time.perf_counter()
            job()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def processor_seconds() -> float:
    """Of this process and all below it, Java among them. On a busy machine it says more than the time on the clock."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            spent[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    below, waiting = set(), [os.getpid()]
    while waiting:
        at = waiting.pop()
        below.add(at)
        waiting += [process for process, parent in parents.items() if parent == at]
    return sum(spent.get(process, 0) for process in below) / os.sysconf("SC_CLK_TCK")
