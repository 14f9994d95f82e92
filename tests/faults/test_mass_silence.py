"""Rows 18 and 36: a large part of the fleet falls silent, or loses its connections, at once."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from routebook.store.namespace import Namespace
from tests.attacks.attacked_service import attacked_service
from tests.attacks.removed_brokers import broker_names, removed
from tests.faults.laboratory import Laboratory, seconds_until, single_store
from tests.faults.traffic import Worker
from tests.remoting.port import BROKER_A, registration_body
from tests.runtime.running import Running
from tests.support.broker_hosts import BrokerHosts
from tests.support.figures import Figures
from tests.support.peers import Peer
from tests.support.tcp_balancer import TcpBalancer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

FLEET = 12
WINDOW_MS = 8_000
HOLD_MINIMUM = 5
"""The default: fewer removals within a minute are never held, so up to four are made before the hold."""


def expect_removed_by_now(laboratory: Laboratory) -> None:
    """A hold lasts until an operator ends it, so only now it is known by when the brokers had to be removed."""
    deaths = laboratory.recording.deaths
    deaths[:] = [replace(death, bound_s=time.monotonic() - death.at) for death in deaths]


async def _is_held(worker: Worker) -> bool:
    return bool((await asyncio.to_thread(worker.process.get, "/v1/expiry")).json()["held"])


async def _release(worker: Worker) -> None:
    answer = await asyncio.to_thread(httpx.post, worker.process.http + "/v1/expiry/release", trust_env=False)
    answer.raise_for_status()


@pytest.mark.parametrize("share", [0.5, 1.0], ids=["half", "all"])
async def test_brokers_that_fall_silent_at_once_are_held_until_an_operator_releases_them(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures, share: float
) -> None:
    """A broker that dies during the hold is held, too, and the same command removes it."""
    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed) as laboratory:
            await laboratory.start(workers=2, brokers=FLEET)
            await laboratory.calm()
            brokers = list(laboratory.brokers.values())
            silent = brokers[: int(FLEET * share)]
            dying = brokers[int(FLEET * share) :][:1]
            for broker in silent:
                broker.fall_silent()
            worker = laboratory.workers[0]
            held_s = await seconds_until(lambda: _is_held(worker))
            timeout_s = sum(
                int(laboratory.settings[name]) / 1000
                for name in ("broker_timeout_ms", "scan_not_active_broker_interval_ms")
            )
            figure("the hold begins after", held_s, "s", at_most=timeout_s + 1)
            for broker in dying:
                broker.kill()
            # Longer than the grace and the timeout of the broker that died.
            await asyncio.sleep(timeout_s + 2)
            kept = await laboratory.brokers_of(worker)
            # Those that were due before the others made it a mass removal are gone.
            figure("brokers kept during the hold", len(kept), at_least=FLEET - (HOLD_MINIMUM - 1))
            assert {broker.name for broker in dying} <= kept
            alarms = sum([await laboratory.metric(one, "routebook_expiry_held") for one in laboratory.workers])
            figure("workers that raise the alarm", alarms, at_least=1)
            await _release(worker)
            gone = [broker.name for broker in (*silent, *dying)]
            released_s = await seconds_until(laboratory.all_are_complete)
            figure("after the command, the silent and dead brokers are gone within", released_s, "s", at_most=5)
            expect_removed_by_now(laboratory)
            await laboratory.calm()
            remaining = {broker.name for broker in brokers} - set(gone)
            assert [await laboratory.brokers_of(one) for one in laboratory.running_workers] == [remaining] * 2
            for broker in (*silent, *dying):
                await broker.revive()
            await until(laboratory.all_are_complete)
            await laboratory.prove(required=("I1", "I2", "I4", "I5", "I6"))


async def test_a_broker_that_died_in_a_hold_is_removed_when_the_others_are_back(
    namespace_name: str, tmp_path: Path, seed: int, figure: Figures
) -> None:
    """No operator is needed: heartbeats end the hold, and then the deadline of the dead broker decides. Some of the
    silent brokers were removed before the hold began; when they are back, they count no longer after the window.
    """
    with single_store() as store:
        async with Laboratory(store, namespace_name, tmp_path, seed, hold_window_ms=WINDOW_MS) as laboratory:
            await laboratory.start(workers=2, brokers=FLEET)
            await laboratory.calm()
            silent = list(laboratory.brokers.values())[: FLEET // 2]
            dying = list(laboratory.brokers.values())[-1]
            for broker in silent:
                broker.fall_silent()
            await until(lambda: _is_held(laboratory.workers[0]))
            dying.kill()
            await asyncio.sleep(3)
            for broker in silent:
                await broker.revive()
            back = time.monotonic()
            await until(laboratory.all_are_complete)
            figure(
                "the dead broker is removed after the others are back within", time.monotonic() - back, "s", at_most=12
            )
            expect_removed_by_now(laboratory)
            assert not await _is_held(laboratory.workers[0])
            await laboratory.calm()
            await laboratory.prove(required=("I1", "I2", "I4", "I5", "I6"))


class CutBroker:
    """A broker behind a balancer. It connects again at once, and registers only at its next period."""

    def __init__(self, name: str, address: str, balancer: str) -> None:
        self.name = name
        self._ext = BROKER_A | {"brokerName": name, "brokerAddr": address, "heartbeatTimeoutMillis": "8000"}
        self._balancer = balancer
        self._body = registration_body("TopicA", f"own-{name}")
        self.period_s = 2.5

    async def run(self) -> None:
        peer: Peer | None = None
        try:
            while True:
                due = time.monotonic() + self.period_s
                try:
                    peer = peer or await Peer.connect(self._balancer)
                    assert (await peer.ask(103, self._ext, self._body)).code == 0
                    if await self._is_cut(peer, due):
                        peer.abort()
                        peer = await Peer.connect(self._balancer)
                except (OSError, EOFError):
                    if peer:
                        peer.abort()
                    peer = None
                await asyncio.sleep(max(due - time.monotonic(), 0.05))
        finally:
            if peer:
                peer.abort()

    @staticmethod
    async def _is_cut(peer: Peer, until_s: float) -> bool:
        try:
            async with asyncio.timeout(max(until_s - time.monotonic(), 0)):
                return not await peer.reader.read(1)
        except TimeoutError:
            return False


@pytest.mark.parametrize("dialled", ["refusing", "silent", "accepting"])
async def test_a_balancer_that_restarts_costs_no_broker(
    namespace: Namespace, store_url: str, tmp_path: Path, figure: Figures, dialled: str
) -> None:
    """All connections drop. The addresses of the brokers refuse the dial (a firewall between the networks), swallow it
    (a firewall that drops packets), or accept it. The grace ends before most brokers register again.
    """
    fast = ("--connection-grace-ms", "1000", "--scan-not-active-broker-interval-ms", "300")
    flags = (*fast, "--dial-networks", "127.0.0.0/8")
    async with AsyncExitStack() as stack:
        name = namespace.keys.namespace
        workers = [
            await stack.enter_async_context(attacked_service(store_url, name, tmp_path, *flags)) for _ in range(2)
        ]
        ports = [int(worker.remoting.rpartition(":")[2]) for worker in workers]
        balancer = stack.enter_context(TcpBalancer(ports))
        hosts = stack.enter_context(BrokerHosts())
        brokers = [CutBroker(f"broker-{n}", getattr(hosts, dialled)(), balancer.address) for n in range(FLEET)]
        tasks = [asyncio.create_task(broker.run()) for broker in brokers]
        names = {broker.name for broker in brokers}
        try:
            await until(lambda: _all_have(workers, names))
            for _ in range(3):
                await asyncio.to_thread(balancer.restart)
                # The grace, and longer than the timeout of the brokers.
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    assert await _all_have(workers, names)
                    await asyncio.sleep(0.1)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [result for result in results if not isinstance(result, asyncio.CancelledError)]
        figure("healthy brokers removed", len(await removed(namespace)), exactly=0)
        alarms = sum([await _alarms(worker) for worker in workers])
        if dialled != "accepting":
            figure("alarms raised", alarms, at_least=1)


async def _all_have(workers: list[Running], names: set[str]) -> bool:
    return all([await broker_names(worker) == names for worker in workers])


async def _alarms(worker: Running) -> float:
    text = (await asyncio.to_thread(worker.get_admin, "/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("routebook_mass_disconnect_alarms_total ")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)
