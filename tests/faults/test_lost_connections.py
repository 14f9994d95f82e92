"""Lost connections between real workers and broker processes: which of them remove a broker."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from routebook.store.history import Change, changes_between
from routebook.store.namespace import Namespace
from tests.architecture.sources import ROOT
from tests.runtime.running import Running
from tests.support.fault_proxy import FaultProxy
from tests.support.figures import Figures
from tests.support.tcp_balancer import TcpBalancer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GRACE_MS = 1500
OFTEN_S, SELDOM_S = 1.0, 600.0
"""Seconds between two registrations of a broker. With SELDOM_S it registers only once, even after a lost connection."""


@dataclass
class BrokerProcess:
    process: asyncio.subprocess.Process
    addresses: list[str] = field(default_factory=list)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


class Site:
    """Workers, a balancer in front of them, and brokers that connect to the balancer."""

    def __init__(self, namespace: Namespace, store_url: str, folder: Path, stack: AsyncExitStack) -> None:
        self.namespace = namespace
        self.workers: list[Running] = []
        self._store_url = store_url
        self._folder = folder
        self._stack = stack
        self.balancer = TcpBalancer([])

    async def start_worker(self, *flags: str, store_url: str = "") -> Running:
        command = ["serve", "--redis-url", store_url or self._store_url, "--namespace", self.namespace.keys.namespace]
        command += ["--bind-address", "127.0.0.1", "--connection-grace-ms", str(GRACE_MS), *flags]
        running = Running(*command, folder=self._folder)
        await asyncio.to_thread(running.__enter__)
        self._stack.callback(running.__exit__, None, None, None)
        self.workers.append(running)
        self.balancer.upstream_ports += (_port_of(running),)
        return running

    async def start_broker(self, *names: str, period_s: float = SELDOM_S, at: Running | None = None) -> BrokerProcess:
        name_server = at.remoting if at else self.balancer.address
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.faults.broker_process", name_server, str(period_s), *names),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        broker = BrokerProcess(process)
        self._stack.push_async_callback(_kill, process)
        assert process.stdout
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        broker.addresses = line.split()
        return broker

    async def broker_names(self, worker: Running) -> set[str]:
        answer = await asyncio.to_thread(worker.get, "/v1/brokers")
        return {broker["name"] for broker in answer.json()["brokers"]}

    async def all_list(self, *names: str) -> bool:
        """Whether every worker has exactly these brokers."""
        return all([await self.broker_names(worker) == set(names) for worker in self.workers])

    async def removals(self) -> list[Change]:
        changes = await changes_between(self.namespace, 0, 1000)
        return [change for change in changes if change.kind == "broker-removed"]

    async def outcomes(self) -> dict[str, int]:
        """How many lost connections had each outcome, over all workers."""
        found: dict[str, int] = {}
        for worker in self.workers:
            text = (await asyncio.to_thread(worker.get_admin, "/metrics")).text
            for line in text.splitlines():
                if line.startswith("routebook_lost_connections_total{") and not line.endswith(" 0.0"):
                    outcome = line.split('"')[1]
                    found[outcome] = found.get(outcome, 0) + int(float(line.rpartition(" ")[2]))
        return found

    async def has(self, **outcomes: int) -> bool:
        return await self.outcomes() == outcomes


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def site_with(
    namespace: Namespace, store_url: str, folder: Path, workers: int, *flags: str
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        site = Site(namespace, store_url, folder, stack)
        stack.enter_context(site.balancer)
        for _ in range(workers):
            await site.start_worker(*flags)
        yield site


@pytest.fixture
async def site(namespace: Namespace, store_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with site_with(namespace, store_url, tmp_path, 2) as site:
        yield site


def _port_of(worker: Running) -> int:
    return int(worker.remoting.rpartition(":")[2])


async def test_a_killed_broker_is_removed_everywhere_within_the_grace_time_and_a_second(
    site: Site, figure: Figures
) -> None:
    broker = await site.start_broker("broker-1")
    await site.start_broker("broker-2")
    await until(lambda: site.all_list("broker-1", "broker-2"))
    await broker.kill()
    await until(lambda: site.all_list("broker-2"))
    (removed,) = await site.removals()
    assert removed.fields["cause"] == "connection-lost"
    # Both times are by the store's clock.
    took_ms = removed.ms - removed.fields["lost_ms"]
    figure("a killed process was removed after", took_ms / 1000, "s", at_most=GRACE_MS / 1000 + 1)
    await until(lambda: site.has(removed_refused=1))


async def test_all_brokers_of_a_killed_container_are_removed(site: Site) -> None:
    container = await site.start_broker("broker-1", "broker-2")
    assert len(container.addresses) == 2
    await until(lambda: site.all_list("broker-1", "broker-2"))
    await container.kill()
    await until(site.all_list)


async def test_a_broker_that_dies_with_its_worker_is_removed_after_the_lease(site: Site) -> None:
    first, second = site.workers
    broker = await site.start_broker("broker-1", at=second)
    await site.start_broker("broker-2", at=second)
    sessions = site.namespace.keys.of("sessions", await _name_of(second))
    second.kill()
    await broker.kill()
    site.workers.remove(second)
    await until(lambda: _is_absent(site, sessions))
    await until(lambda: site.all_list("broker-2"), timeout_s=GRACE_MS / 1000 + 4)
    assert await site.broker_names(first) == {"broker-2"}


async def test_a_killed_worker_causes_no_removal(site: Site) -> None:
    """Its brokers connect again through the balancer. Its sessions are deleted when its lease expires."""
    first, second = site.workers
    for number in range(4):
        await site.start_broker(f"broker-{number}", period_s=OFTEN_S)
    sessions = site.namespace.keys.of("sessions", await _name_of(second))
    second.kill()
    site.workers.remove(second)
    await until(lambda: _is_absent(site, sessions))
    assert await site.broker_names(first) == {f"broker-{number}" for number in range(4)}
    assert await site.removals() == []


async def _name_of(worker: Running) -> str:
    return str((await asyncio.to_thread(worker.get, "/v1/status")).json()["worker"])


async def _is_absent(site: Site, key: str) -> bool:
    return not int(await site.namespace.client.call("EXISTS", key))


async def test_a_stopped_worker_causes_no_removal(site: Site) -> None:
    first, second = site.workers
    for number in range(4):
        await site.start_broker(f"broker-{number}")
    assert await asyncio.to_thread(second.stop, signal.SIGTERM) == 0
    site.workers.remove(second)
    assert await site.broker_names(first) == {f"broker-{number}" for number in range(4)}
    assert await site.outcomes() == {}
    assert await site.removals() == []


async def test_a_broker_that_moves_to_another_worker_is_not_removed(site: Site) -> None:
    """Its connection is lost, and it registers again at once with the other worker, through the balancer."""
    await site.start_broker("broker-1", period_s=0.2)
    for _ in range(3):
        site.balancer.cut()
        await asyncio.sleep(GRACE_MS / 1000 / 2)
    await until(lambda: site.all_list("broker-1"))
    assert await site.removals() == []


async def test_a_balancer_that_resets_all_connections_causes_no_removal(site: Site) -> None:
    """The brokers connect again but do not register."""
    names = [f"broker-{number}" for number in range(6)]
    for name in names:
        await site.start_broker(name)
    await until(lambda: site.all_list(*names))
    site.balancer.cut()
    await until(lambda: site.has(alive=6))
    assert await site.all_list(*names)
    assert await site.removals() == []


async def test_an_expiry_closes_the_connection_at_each_worker(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """Each of three workers has one broker, so at most one broker is connected to the leader itself."""
    often = ("--broker-timeout-ms", "1000", "--scan-not-active-broker-interval-ms", "200", "--hold-minimum", "100")
    async with site_with(namespace, store_url, tmp_path, 3, *often) as site:
        for number, worker in enumerate(site.workers):
            await site.start_broker(f"broker-{number}", at=worker)
        await until(site.all_list)
        removed = await site.removals()
        assert [change.fields["cause"] for change in removed] == ["expired"] * 3
        for worker in site.workers:
            await until(partial(_has_no_session, worker))


async def _has_no_session(worker: Running) -> bool:
    text = (await asyncio.to_thread(worker.get_admin, "/metrics")).text
    return "routebook_sessions 0.0" in text


async def test_brokers_of_a_worker_that_lost_the_store_move_to_other_workers(site: Site, store_url: str) -> None:
    async with FaultProxy.before(store_url) as proxy:
        cut_off = await site.start_worker("--store-cut-off-ms", "2000", store_url=proxy.url)
        names = [f"broker-{number}" for number in range(4)]
        for name in names:
            await site.start_broker(name, period_s=OFTEN_S, at=None)
        await until(lambda: site.all_list(*names))
        sessions = site.namespace.keys.of("sessions", await _name_of(cut_off))
        assert not await _is_absent(site, sessions)
        site.balancer.upstream_ports = tuple(_port_of(worker) for worker in site.workers if worker is not cut_off)
        proxy.stall()
        others = [worker for worker in site.workers if worker is not cut_off]
        keys = [site.namespace.keys.of("sessions", await _name_of(worker)) for worker in others]
        await until(lambda: _have_sessions(site, keys, len(names)))
        lookup = await asyncio.to_thread(cut_off.get, "/v1/routes/orders")
        assert lookup.status_code == 200
        assert "x-routebook-stale-seconds" in lookup.headers
        proxy.heal()
        await until(lambda: site.all_list(*names))
        assert await site.removals() == []


async def _have_sessions(site: Site, sessions: list[str], number: int) -> bool:
    found: set[bytes] = set()
    for key in sessions:
        found |= set(await site.namespace.client.call("HKEYS", key))
    return len(found) == number
