"""A7 and A8: one brake over every kind of removal.

Neither a cut network nor a peer removes a large part of the fleet at once, and brokers that exist only to fall silent
do not keep a dead broker.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from routebook.store.namespace import Namespace
from tests.attacks.attacked_service import attacked_service
from tests.attacks.removed_brokers import Brokers, ConnectedBroker, broker_names, make_established, removed
from tests.remoting.port import BROKER_A
from tests.runtime.running import Running
from tests.support.peers import Peer
from tests.support.tcp_balancer import TcpBalancer
from tests.support.waiting import until

GRACE_S = 1.5
GRACE = ("--connection-grace-ms", str(int(GRACE_S * 1000)))
FLEET = 40


async def test_brokers_cut_off_at_the_balancer_are_kept_although_their_addresses_refuse(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """A8. A firewall that rejects connections answers every dial with a refusal."""
    async with AsyncExitStack() as stack, Brokers() as brokers:
        name = namespace.keys.namespace
        workers = [
            await stack.enter_async_context(attacked_service(store_url, name, tmp_path, *GRACE)) for _ in range(2)
        ]
        balancer = stack.enter_context(TcpBalancer([_port_of(worker) for worker in workers]))
        for number in range(FLEET):
            await brokers.register(f"broker-{number}", f"127.0.21.{number + 1}:10911", balancer.address)
        assert len(await broker_names(workers[0])) == FLEET
        balancer.cut()
        await asyncio.sleep(GRACE_S + 3)
        assert await removed(namespace) == []
        assert [len(await broker_names(worker)) for worker in workers] == [FLEET, FLEET]


async def test_connections_that_are_cut_one_after_another_are_held_beyond_the_share(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """Too few at a time for a mass disconnect. An operator may then release them."""
    flags = ("--connection-grace-ms", "300", "--scan-not-active-broker-interval-ms", "300")
    fast = (*flags, "--mass-disconnect-minimum", "100")
    async with attacked_service(store_url, namespace.keys.namespace, tmp_path, *fast) as service, Brokers() as brokers:
        fleet = await _register_fleet(service, brokers)
        await make_established(namespace)
        for broker in fleet:
            broker.peer.abort()
            await asyncio.sleep(0.3)
        await asyncio.sleep(1)
        assert len(await removed(namespace)) <= FLEET * 3 // 10
        assert (await asyncio.to_thread(service.get, "/v1/expiry")).json()["held"]
        release = await asyncio.to_thread(_post, service, "/v1/expiry/release")
        assert release == 200
        await until(lambda: _has(service, 0))


async def test_a_flood_of_unregistrations_is_held_beyond_the_share(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """A7. The brokers live: those that were removed are back with their next registration, and the hold ends."""
    fast = ("--scan-not-active-broker-interval-ms", "300")
    async with attacked_service(store_url, namespace.keys.namespace, tmp_path, *fast) as service, Brokers() as brokers:
        fleet = await _register_fleet(service, brokers)
        await make_established(namespace)
        async with await Peer.connect(service.remoting) as attacker:
            for broker in fleet:
                answer = await attacker.ask(104, BROKER_A | {"brokerName": broker.name, "brokerAddr": broker.address})
                assert answer.code == 0, "a broker that stops has nothing to do about a hold"
        await until(lambda: _is_held(service))
        assert 0 < len(await removed(namespace)) <= FLEET * 3 // 10
        for broker in fleet:
            await broker.register_again()
        await until(lambda: _has(service, FLEET))
        await until(lambda: _is_not_held(service))
        assert len(await removed(namespace)) <= FLEET * 3 // 10


async def test_a_broker_that_stops_by_itself_is_removed_at_once(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    async with attacked_service(store_url, namespace.keys.namespace, tmp_path) as service, Brokers() as brokers:
        fleet = await _register_fleet(service, brokers)
        await make_established(namespace)
        stopping = fleet[0]
        began = time.monotonic()
        await stopping.peer.ask(104, BROKER_A | {"brokerName": stopping.name, "brokerAddr": stopping.address})
        await until(lambda: _has(service, FLEET - 1))
        assert time.monotonic() - began < 3


async def test_fake_brokers_that_fall_silent_do_not_keep_a_dead_broker(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """A7. Twenty of thirty-one: with them counted, the expiry of the dead broker would be held."""
    timeout_ms = 3000
    fast = ("--scan-not-active-broker-interval-ms", "300")
    async with (
        attacked_service(store_url, namespace.keys.namespace, tmp_path, *fast) as service,
        Brokers() as brokers,
        asyncio.TaskGroup() as tasks,
    ):
        fleet = [
            await brokers.register(f"real-{number}", f"127.0.22.{number + 1}:10911", service.remoting, 60_000)
            for number in range(11)
        ]
        await make_established(namespace)
        dead, *living = fleet
        for number in range(20):
            await brokers.register(f"fake-{number}", f"127.0.23.{number + 1}:10911", service.remoting, timeout_ms)
        await dead.register_again(timeout_ms)
        heartbeats = [tasks.create_task(broker.keep_registering(1, 60_000)) for broker in living]
        names = {broker.name for broker in living}
        await until(lambda: _has_exactly(service, names), timeout_s=30)
        assert not await _is_held(service)
        for heartbeat in heartbeats:
            heartbeat.cancel()


async def test_many_fake_brokers_do_not_hide_that_a_fleet_is_cut_off(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """Ten real brokers fall silent among forty fake ones: a fifth of all, but all that count."""
    fast = ("--scan-not-active-broker-interval-ms", "300")
    async with attacked_service(store_url, namespace.keys.namespace, tmp_path, *fast) as service, Brokers() as brokers:
        for number in range(10):
            await brokers.register(f"real-{number}", f"127.0.22.{number + 1}:10911", service.remoting, 4000)
        await make_established(namespace)
        for number in range(40):
            await brokers.register(f"fake-{number}", f"127.0.23.{number + 1}:10911", service.remoting)
        await until(lambda: _is_held(service), timeout_s=30)
        assert {f"real-{number}" for number in range(10)} <= await broker_names(service)


async def test_a_dead_broker_of_a_dead_worker_is_removed_soon_after_its_lease(
    namespace: Namespace, store_url: str, tmp_path: Path
) -> None:
    """Both die at once, so no worker sees the connection end. The broker that lives keeps its deadline."""
    async with AsyncExitStack() as stack, Brokers() as brokers:
        name = namespace.keys.namespace
        remaining = await stack.enter_async_context(attacked_service(store_url, name, tmp_path, *GRACE))
        dying = await stack.enter_async_context(attacked_service(store_url, name, tmp_path, *GRACE))
        listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.24.1", 0)
        stack.push_async_callback(listener.wait_closed)
        stack.callback(listener.close)
        living = f"127.0.24.1:{listener.sockets[0].getsockname()[1]}"
        await brokers.register("living", living, dying.remoting)
        await brokers.register("dead", "127.0.24.2:10911", dying.remoting)
        await brokers.register("elsewhere", "127.0.24.3:10911", remaining.remoting)
        workers = namespace.keys.table("workers")
        dying.kill()
        began = time.monotonic()
        while int(await namespace.client.call("ZCARD", workers)) == 2:
            assert time.monotonic() - began < 40, "the lease of a worker ends after 10 s"
            await asyncio.sleep(0.05)
        await until(lambda: _has_exactly(remaining, {"living", "elsewhere"}), timeout_s=GRACE_S + 4)
        (change,) = await removed(namespace)
        assert change.fields["cause"] == "connection-lost"


async def _register_fleet(service: Running, brokers: Brokers) -> list[ConnectedBroker]:
    return [
        await brokers.register(f"broker-{number}", f"127.0.21.{number + 1}:10911", service.remoting)
        for number in range(FLEET)
    ]


def _port_of(service: Running) -> int:
    return int(service.remoting.rpartition(":")[2])


def _post(service: Running, path: str) -> int:
    return httpx.post(service.http + path, timeout=10, trust_env=False).status_code


async def _has(service: Running, number: int) -> bool:
    return len(await broker_names(service)) == number


async def _has_exactly(service: Running, names: set[str]) -> bool:
    return await broker_names(service) == names


async def _is_held(service: Running) -> bool:
    return bool((await asyncio.to_thread(service.get, "/v1/expiry")).json()["held"])


async def _is_not_held(service: Running) -> bool:
    return not await _is_held(service)
