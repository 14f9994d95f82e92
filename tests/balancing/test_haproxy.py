"""Workers are killed, drained and replaced behind HAProxy while clients look up and brokers register.

`.venv/bin/python -m pytest -m slow -s tests/balancing` prints the results of each kind of client (docs/balancing.md).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.balancing.balanced_service import (
    BROKER_PROCESSES,
    DRAIN_MS,
    WORKERS,
    BalancedService,
    Brokers,
    haproxy_or_skip,
)
from tests.balancing.clients import ClientPool, GoAwayClient, HttpClient, LegacyClient, OneShotClient, Route
from tests.balancing.results import KindResult
from tests.balancing.verdicts import assert_no_lookup_failed, assert_only_lookups_in_flight_failed
from tests.faults.broker_process import register_all
from tests.support.figures import Figures
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("balancing")]

TOPIC = "orders"
CLIENTS_OF_A_KIND = 15
# `leastconn` spreads connections evenly; the one given last may exceed a worker's share.
WORKER_SHARE = ceil((3 * CLIENTS_OF_A_KIND + BROKER_PROCESSES) / WORKERS) + 1
SETTLING_S = 1.0


@pytest.fixture
def service(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[BalancedService]:
    haproxy_or_skip()
    with BalancedService(store_url, namespace_name, tmp_path) as running:
        yield running


@asynccontextmanager
async def looking_up(service: BalancedService, scenario: str) -> AsyncIterator[dict[str, KindResult]]:
    """Runs clients of every kind and twelve brokers, and checks at the end that no broker was removed."""
    async with Brokers(service.rocketmq) as brokers:
        await until(lambda: all_workers_know(service, brokers.all), timeout_s=10)
        route = Route(TOPIC, brokers.addresses)
        pools = [
            ClientPool("go_away", CLIENTS_OF_A_KIND, lambda result: GoAwayClient(service.rocketmq, route, result)),
            ClientPool("legacy", CLIENTS_OF_A_KIND, lambda result: LegacyClient(service.rocketmq, route, result)),
            ClientPool("one_shot", CLIENTS_OF_A_KIND, lambda result: OneShotClient(service.rocketmq, route, result)),
            ClientPool("http", 5, lambda result: HttpClient(service.http, route, result)),
        ]
        async with AsyncExitStack() as stack:
            for pool in pools:
                await stack.enter_async_context(pool)
            await asyncio.sleep(SETTLING_S)
            yield {pool.result.kind: pool.result for pool in pools}
            await asyncio.sleep(SETTLING_S)
        for pool in pools:
            print(f"\n{scenario}: {pool.result}", end="")
        assert removals(service) == []
        assert await knows(service, brokers.all)


async def all_workers_know(service: BalancedService, names: list[str]) -> bool:
    """HAProxy spreads these requests over the workers in turn."""
    return all([await knows(service, names) for _ in range(WORKERS)])


async def knows(service: BalancedService, names: list[str]) -> bool:
    answer = await asyncio.to_thread(httpx.get, f"{service.http}/v1/brokers", timeout=5, trust_env=False)
    return {broker["name"] for broker in answer.json()["brokers"]} == set(names)


def changes(service: BalancedService) -> list[dict[str, Any]]:
    answer = httpx.get(f"{service.http}/v1/changes", params={"since": 0, "limit": 1000}, timeout=5, trust_env=False)
    found: list[dict[str, Any]] = answer.json()["changes"]
    return found


def removals(service: BalancedService) -> list[dict[str, Any]]:
    return [change for change in changes(service) if change["kind"] == "broker-removed"]


async def test_replacing_all_workers_fails_no_lookup(service: BalancedService, figure: Figures) -> None:
    async with looking_up(service, "replaced") as results:
        for number in range(WORKERS):
            assert await asyncio.to_thread(service.workers[number].stop) == 0
            await asyncio.to_thread(service.replace, number)
            await asyncio.sleep(SETTLING_S)
    for result in results.values():
        # Legacy clients are served until a drain ends; a lookup in flight at that moment is retried.
        assert_no_lookup_failed(result, retries=WORKERS)
        figure(f"{result.kind} clients: lookups", result.answered)
        figure(f"{result.kind} clients: lookups lost", len(result.failed), exactly=0)
    assert results["go_away"].moved > 0
    assert results["legacy"].reconnected + results["legacy"].retried > 0


async def test_a_draining_worker_serves_its_clients_and_gets_no_new_ones(service: BalancedService) -> None:
    async with looking_up(service, "drained") as results:
        worker = service.workers[0]
        stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
        noticed_s = await asyncio.to_thread(service.wait_for_state, 0, "DOWN")
        print(f"\nHAProxy noticed the drain after {noticed_s:.2f} s", end="")
        assert noticed_s < DRAIN_MS / 1000
        assert not stopping.done()
        connections = service.total_connections(0)
        before = results["legacy"].answered
        await until(lambda: results["legacy"].answered > before + 100)
        assert await stopping == 0
        assert service.total_connections(0) == connections
        assert "0 requests were cut off" in worker.log
    for result in results.values():
        assert_no_lookup_failed(result, retries=1)


async def test_a_killed_worker_fails_only_lookups_in_flight(service: BalancedService, figure: Figures) -> None:
    async with looking_up(service, "killed") as results:
        connected = await asyncio.to_thread(service.open_connections, 1)
        await asyncio.to_thread(service.workers[1].kill)
        took_s = await asyncio.to_thread(service.wait_for_state, 1, "DOWN")
        print(f"\nHAProxy noticed the death after {took_s:.2f} s", end="")
    print(f"\nIt had {connected} connections", end="")
    assert_only_lookups_in_flight_failed(results, connected=connected, worker_share=WORKER_SHARE)
    figure("HAProxy noticed the death after", took_s, "s")
    for kind in ("go_away", "one_shot"):
        figure(f"{kind} clients: lookups in flight that were lost", len(results[kind].failed), at_most=WORKER_SHARE)
    for kind in ("legacy", "http"):
        figure(f"{kind} clients (they retry): lookups lost", len(results[kind].failed), exactly=0)


async def test_the_history_names_the_real_peer(service: BalancedService) -> None:
    """On both ports the source of a change is the client, not HAProxy."""
    host, _, port = service.rocketmq.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.6", 0))
    assert await register_all({"over-rocketmq": "127.0.4.1:10911"}, reader, writer)
    transport = httpx.HTTPTransport(local_address="127.0.0.5")
    with httpx.Client(base_url=service.http, transport=transport, trust_env=False) as client:
        path = "/v1/clusters/east/brokers/over-http/0"
        client.put(path, json={"address": "127.0.4.1:10912", "topics": {TOPIC: {}}}).raise_for_status()
    writer.close()
    sources = {change["broker"]: change["source"] for change in changes(service)}
    assert sources["over-rocketmq"].startswith("127.0.0.6:")
    assert sources["over-http"].startswith("127.0.0.5:")
