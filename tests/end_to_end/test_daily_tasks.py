"""Runs the commands of docs/daily-tasks.md in order, and compares what they print with what the page shows."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from routebook.store.connection.client import StoreClient
from routebook.store.connection.url import StoreUrl
from routebook.store.keys import Keys
from tests.end_to_end.documents import read_steps
from tests.runtime.running import Running
from tests.support.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "daily-tasks.md"
STEPS = list(read_steps(PAGE.read_text(), {}))
COMMAND_SECONDS = 60.0
TASKS = 20
SILENT_S = 330
"""More than half of the timeout of ten minutes, and far from all of it, so that the broker is late during the test."""


@pytest.fixture(scope="module")
def environment(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The fleet that the page describes, and the variables that lead the commands to it."""
    folder = tmp_path_factory.mktemp("daily-tasks")
    namespace = f"t-daily-{os.getpid()}"
    flags = ("--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1")
    with Running("serve", *flags, folder=folder) as service:
        register(service, "broker-a", 0, "127.0.0.11:10911", counter=3)
        register(service, "broker-a", 1, "127.0.0.12:10911", counter=3)
        register(service, "broker-b", 0, "127.0.0.13:10911", counter=5)
        register(service, "broker-c", 0, "127.0.0.14:10911", counter=1)
        asyncio.run(make_silent(store_url, namespace, "DefaultCluster/127.0.0.14:10911"))
        moment = int(time.time()) + 1
        # What follows is not part of what changed before that moment.
        wait_until(lambda: time.time() > moment, "the clock shows 03:12")
        refused = httpx.put(
            f"{service.http}/v1/kv/ORDER/key",
            json={"value": "v"},
            headers={"x-forwarded-for": "10.0.0.1"},
            trust_env=False,
        )
        assert refused.status_code == 401
        wait_until(lambda: service.get("/v1/expiry").json()["instances"] == 4, "a scan has seen all brokers")
        yield {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "ROUTEBOOK_URL": service.http,
            "TZ": zone_in_which_it_is("03:12", moment),
        }
        service.stop()


def register(service: Running, broker: str, broker_id: int, address: str, *, counter: int) -> None:
    body: dict[str, Any] = {
        "address": address,
        "timeout_ms": 600_000,
        "data_version": {"state_version": 0, "timestamp": 1763475600000, "counter": counter},
        "topics": {"orders": {"read_queues": 8, "write_queues": 8}, "bills": {"read_queues": 4, "write_queues": 4}},
    }
    service.put(f"/v1/clusters/DefaultCluster/brokers/{broker}/{broker_id}", body).raise_for_status()


async def make_silent(store_url: str, namespace: str, instance_name: str) -> None:
    """As if its last heartbeat were some minutes ago."""
    keys = Keys(namespace)
    client = StoreClient(StoreUrl.parse(store_url), slot_key=keys.meta, timeout_ms=5000)
    await client.open()
    try:
        for table in ("heartbeats", "deadlines"):
            await client.call("ZINCRBY", keys.table(table), str(-SILENT_S * 1000), instance_name)
    finally:
        await client.close()


def zone_in_which_it_is(clock: str, moment: float) -> str:
    """A time zone (POSIX form) in which a clock shows this time at that moment."""
    hour, _, minute = clock.partition(":")
    utc = datetime.fromtimestamp(moment, UTC)
    ahead = timedelta(hours=int(hour), minutes=int(minute)) - timedelta(
        hours=utc.hour, minutes=utc.minute, seconds=utc.second
    )
    seconds = int(ahead.total_seconds())
    sign, seconds = ("-", seconds) if seconds >= 0 else ("", -seconds)
    return f"DAY{sign}{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def test_the_page_has_one_command_for_each_task() -> None:
    tasks = [line for line in PAGE.read_text().splitlines() if line.startswith("### ")]
    assert len(tasks) == len(STEPS) == TASKS
    assert all(step.command.count("\n") == 1 and step.answer is not None for step in STEPS)


def test_each_task_prints_what_the_page_shows(environment: dict[str, str]) -> None:
    for step in STEPS:
        done = subprocess.run(
            ["sh", "-c", step.command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{step.command}{done.stdout}{done.stderr}"
        assert step.is_answered_by(done.stdout), (
            f"{step.command}printed:\n{done.stdout}{done.stderr}\ninstead of:\n{step.answer}"
        )
