"""Workers that are killed, drained and rolled behind HAProxy, under lookups and registrations.

`.venv/bin/python -m pytest -m slow -s tests/balancing` prints what each kind of client saw (docs/balancing.md).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.balancing.lookups import Brief, Crowd, Following, Old, OverHttp, Route
from tests.balancing.seen import SeenByKind
from tests.balancing.site import BROKER_PROCESSES, DRAIN_MS, WORKERS, Brokers, Site, haproxy_or_skip
from tests.balancing.verdicts import assert_a_death_cost_what_waited, assert_no_lookup_failed
from tests.faults.broker_process import register_all
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPIC = "orders"
EACH = 15
# `leastconn` gives no worker more than its part of all connections, but for the one that is given last.
SHARE = ceil((3 * EACH + BROKER_PROCESSES) / WORKERS) + 1
SETTLED_S = 1.0


@pytest.fixture
def site(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Site]:
    haproxy_or_skip()
    with Site(store_url, namespace_name, tmp_path) as running:
        yield running


@asynccontextmanager
async def crowds(site: Site, what: str) -> AsyncIterator[dict[str, SeenByKind]]:
    """Of every kind, asking; and twelve brokers, none of whom anybody may lose."""
    async with Brokers(site.rocketmq) as brokers:
        await until(lambda: all_know(site, brokers.all), timeout_s=10)
        route = Route(TOPIC, brokers.addresses)
        made = [
            Crowd("following", EACH, lambda seen: Following(site.rocketmq, route, seen)),
            Crowd("old", EACH, lambda seen: Old(site.rocketmq, route, seen)),
            Crowd("brief", EACH, lambda seen: Brief(site.rocketmq, route, seen)),
            Crowd("http", 5, lambda seen: OverHttp(site.http, route, seen)),
        ]
        async with AsyncExitStack() as stack:
            for crowd in made:
                await stack.enter_async_context(crowd)
            await asyncio.sleep(SETTLED_S)
            yield {crowd.seen.kind: crowd.seen for crowd in made}
            await asyncio.sleep(SETTLED_S)
        for crowd in made:
            print(f"\n{what}: {crowd.seen}", end="")
        assert removals(site) == []
        assert await knows(site, brokers.all)


async def all_know(site: Site, names: list[str]) -> bool:
    """HAProxy asks the workers in turn."""
    return all([await knows(site, names) for _ in range(WORKERS)])


async def knows(site: Site, names: list[str]) -> bool:
    answer = await asyncio.to_thread(httpx.get, f"{site.http}/v1/brokers", timeout=5, trust_env=False)
    return {broker["name"] for broker in answer.json()["brokers"]} == set(names)


def changes(site: Site) -> list[dict[str, Any]]:
    answer = httpx.get(f"{site.http}/v1/changes", params={"since": 0, "limit": 1000}, timeout=5, trust_env=False)
    found: list[dict[str, Any]] = answer.json()["changes"]
    return found


def removals(site: Site) -> list[dict[str, Any]]:
    return [one for one in changes(site) if one["kind"] == "broker-removed"]


async def test_rolling_all_workers_costs_no_lookup(site: Site) -> None:
    async with crowds(site, "rolled") as asking:
        for number in range(WORKERS):
            assert await asyncio.to_thread(site.workers[number].stop) == 0
            await asyncio.to_thread(site.start_again, number)
            await asyncio.sleep(SETTLED_S)
    for seen in asking.values():
        # The old ones are served until a drain ends; what was under way then is asked once more.
        assert_no_lookup_failed(seen, retries=WORKERS)
    assert asking["following"].moved > 0
    assert asking["old"].connected_anew + asking["old"].retried > 0


async def test_a_draining_worker_serves_whom_it_has_and_gets_nobody_new(site: Site) -> None:
    async with crowds(site, "drained") as asking:
        worker = site.workers[0]
        stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
        noticed_s = await asyncio.to_thread(site.wait_for_state, 0, "DOWN")
        print(f"\nHAProxy noticed the drain after {noticed_s:.2f} s", end="")
        assert noticed_s < DRAIN_MS / 1000
        assert not stopping.done()
        given = site.connections_given_to(0)
        before = asking["old"].answered
        await until(lambda: asking["old"].answered > before + 100)
        assert await stopping == 0
        assert site.connections_given_to(0) == given
        assert "0 requests were cut off" in worker.log
    for seen in asking.values():
        assert_no_lookup_failed(seen, retries=1)


async def test_a_killed_worker_costs_what_was_in_flight(site: Site) -> None:
    async with crowds(site, "killed") as asking:
        connected = await asyncio.to_thread(site.connected_to, 1)
        await asyncio.to_thread(site.workers[1].kill)
        took_s = await asyncio.to_thread(site.wait_for_state, 1, "DOWN")
        print(f"\nHAProxy noticed the death after {took_s:.2f} s", end="")
    print(f"\n{connected} connections were on it", end="")
    assert_a_death_cost_what_waited(asking, connected=connected, share=SHARE)


async def test_the_history_names_who_really_spoke(site: Site) -> None:
    """Not HAProxy, on either port."""
    host, _, port = site.rocketmq.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.6", 0))
    assert await register_all({"over-rocketmq": "127.0.4.1:10911"}, reader, writer)
    transport = httpx.HTTPTransport(local_address="127.0.0.5")
    with httpx.Client(base_url=site.http, transport=transport, trust_env=False) as client:
        path = "/v1/clusters/east/brokers/over-http/0"
        client.put(path, json={"address": "127.0.4.1:10912", "topics": {TOPIC: {}}}).raise_for_status()
    writer.close()
    sources = {one["broker"]: one["source"] for one in changes(site)}
    assert sources["over-rocketmq"].startswith("127.0.0.6:")
    assert sources["over-http"].startswith("127.0.0.5:")
