"""Which brokers a lost connection removes. Several workers on one store; brokers have real listeners."""

import asyncio

import pytest

from routebook.store.history import changes_between
from tests.reference.build import registration
from tests.registry.fleets import GRACE_MS, Fleet, fleet, mass_disconnects, outcomes
from tests.support.broker_hosts import BrokerHosts
from tests.support.fake_connection import FakeConnection
from tests.support.in_process import CALLER, InProcessWorker
from tests.support.registering import register
from tests.support.scripts import deadline_of, make_old
from tests.support.waiting import until


def lose(worker: InProcessWorker, *connections: FakeConnection) -> None:
    for connection in connections:
        worker.registry.sessions.connection_closed(connection)


async def removals(worker: InProcessWorker) -> list[dict[str, object]]:
    changes = await changes_between(worker.namespace, 0, 1000)
    return [dict(change.fields) for change in changes if change.kind == "broker-removed"]


async def test_a_dead_broker_is_removed_everywhere_and_the_history_has_the_cause(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            connection = await brokers.join(first, hosts.refusing())
            await brokers.join(first, hosts.accepting())
            await until(lambda: brokers.all_show("broker-1", "broker-2"))
            lose(first, connection)
            await until(lambda: brokers.all_show("broker-2"))
            (removed,) = await removals(first)
            assert removed["cause"] == "connection-lost"
            assert isinstance(removed["lost_ms"], int)
            assert removed["actor"] == first.name
            await until(lambda: outcomes(first) == {"removed_refused": 1})
            assert len(first.registry.sessions) == 1


async def test_a_broker_that_does_not_answer_is_removed(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            connection = await brokers.join(first, hosts.silent())
            lose(first, connection)
            await until(brokers.all_show)
            await until(lambda: outcomes(first) == {"removed_silent": 1})


async def test_a_broker_that_still_listens_keeps_its_deadline(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            lose(first, await brokers.join(first, hosts.accepting()))
            await until(lambda: outcomes(first) == {"alive": 1})
            await until(lambda: brokers.all_show("broker-1"))
            await until(lambda: _is_resolved(first))


async def _lost(worker: InProcessWorker) -> int:
    return int(await worker.client.call("HLEN", worker.namespace.keys.table("lost")))


async def _is_resolved(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 0


async def test_every_broker_of_a_lost_connection_is_investigated(store_url: str, namespace_name: str) -> None:
    """A broker container has several; Apache's name server handles only the first of them."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            connection = FakeConnection()
            for _ in range(2):
                await brokers.join(first, hosts.refusing(), connection)
            assert len(first.registry.sessions) == 2
            lose(first, connection)
            await until(brokers.all_show)


async def test_a_broker_with_another_connection_is_not_investigated(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2, connection_grace_ms=0) as brokers:
            first, second = brokers.workers
            broker = registration(hosts.refusing(), broker="broker-1")
            here, also_here = await brokers.register(first, broker), await brokers.register(first, broker)
            there = await brokers.register(second, broker)
            lose(first, here, also_here)
            await until(lambda: outcomes(first) == {"elsewhere": 1})
            assert brokers.all_show("broker-1")
            lose(second, there)
            await until(brokers.all_show)
            await until(lambda: outcomes(second) == {"removed_at_once": 1})


async def test_a_broker_that_moves_to_another_worker_within_its_grace_stays(
    store_url: str, namespace_name: str
) -> None:
    """Its address refuses the dial, because it is just restarting."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, _ = brokers.workers
            broker = registration(hosts.refusing(), broker="broker-1")
            lose(first, await brokers.register(first, broker))
            await until(lambda: _is_lost(first))
            await brokers.register(second, broker)
            await until(lambda: outcomes(first) == {"returned": 1})
            assert await removals(first) == []


async def _is_lost(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 1


async def test_without_a_grace_a_broker_is_removed_at_once_as_by_apache(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, connection_grace_ms=0) as brokers:
            first, *_ = brokers.workers
            lose(first, await brokers.join(first, hosts.accepting()))
            await until(brokers.all_show)


async def _kill(brokers: Fleet, worker: InProcessWorker) -> None:
    """The worker dies, and its lease ends at once."""
    first = brokers.workers[0]
    await worker.end()
    brokers.workers.remove(worker)
    await first.client.call("ZADD", first.namespace.keys.table("workers"), 1, worker.name)
    await until(lambda: _is_removed(first, worker))
    assert await first.client.call("EXISTS", first.namespace.keys.of("sessions", worker.name)) == 0


async def test_brokers_of_a_dead_worker_are_dialled_and_those_that_refuse_are_removed(
    store_url: str, namespace_name: str
) -> None:
    """One that does not answer may be cut off from the leader only, so its deadline decides."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            for address in (hosts.refusing(), hosts.accepting(), hosts.silent()):
                await brokers.join(third, address)
            await _kill(brokers, third)
            await until(lambda: brokers.all_show("broker-2", "broker-3"))
            await until(lambda: _merged(first, second) == {"removed_refused": 1, "alive": 1, "undecided": 1})
            await until(lambda: _is_resolved(first))


async def test_brokers_of_a_dead_worker_that_have_another_session_are_not_dialled(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            broker = registration(hosts.refusing(), broker="broker-1")
            for worker in (second, third):
                await brokers.register(worker, broker)
            await _kill(brokers, third)
            await asyncio.sleep(2 * GRACE_MS / 1000)
            assert brokers.all_show("broker-1")
            assert _merged(first, second) == {}


async def test_many_brokers_of_a_dead_worker_that_refuse_keep_their_deadlines(
    store_url: str, namespace_name: str
) -> None:
    """A firewall that rejects connections refuses the dials of healthy brokers too."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            for _ in range(3):
                await brokers.join(third, hosts.refusing())
            for _ in range(9):
                await brokers.join(second, hosts.accepting())
            await _kill(brokers, third)
            await until(lambda: _merged(first, second) == {"mass_disconnect": 3})
            assert await removals(first) == []


async def _is_removed(worker: InProcessWorker, dead: InProcessWorker) -> bool:
    score = await worker.client.call("ZSCORE", worker.namespace.keys.table("workers"), dead.name)
    return score is None


async def test_a_draining_worker_removes_no_broker(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, connection_grace_ms=0) as brokers:
            first, second, third = brokers.workers
            connections = [await brokers.join(third, hosts.refusing()) for _ in range(2)]
            third.registry.sessions.drain()
            lose(third, *connections)
            await third.presence.deregister()
            await third.end()
            brokers.workers.remove(third)
            await until(lambda: _is_removed(first, third))
            await until(lambda: brokers.all_show("broker-1", "broker-2"))
            assert [outcomes(one) for one in (first, second, third)] == [{}, {}, {}]


async def test_the_leader_takes_over_the_investigations_of_a_draining_worker(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, _, third = brokers.workers
            lose(third, await brokers.join(third, hosts.refusing()))
            await until(lambda: _is_lost(first))
            third.registry.sessions.drain()
            await third.presence.deregister()
            await third.end()
            brokers.workers.remove(third)
            await until(brokers.all_show)
            assert outcomes(third) == {}


async def test_the_leader_takes_over_the_investigations_of_a_dead_worker(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            lose(third, await brokers.join(third, hosts.refusing()))
            lose(third, await brokers.join(third, hosts.accepting()))
            await until(lambda: _both_are_lost(first))
            await third.end()
            brokers.workers.remove(third)
            await first.client.call("ZADD", first.namespace.keys.table("workers"), 1, third.name)
            await until(lambda: brokers.all_show("broker-2"))
            await until(lambda: _merged(first, second) == {"removed_refused": 1, "alive": 1})


async def _both_are_lost(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 2


def _merged(*workers: InProcessWorker) -> dict[str, int]:
    return {name: count for worker in workers for name, count in outcomes(worker).items()}


async def _connect_all(brokers: Fleet, addresses: list[str]) -> list[tuple[InProcessWorker, FakeConnection]]:
    """Connects brokers one after another, to the workers in turn."""
    found = []
    for n, address in enumerate(addresses):
        worker = brokers.workers[n % len(brokers.workers)]
        found.append((worker, await brokers.join(worker, address)))
    return found


async def test_a_restarting_balancer_that_cuts_all_connections_removes_no_broker(
    store_url: str, namespace_name: str
) -> None:
    """All connections end at once. The brokers are alive, and register again only at their next period."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            cut = await _connect_all(brokers, [hosts.accepting() for _ in range(12)])
            for worker, connection in cut:
                lose(worker, connection)
            await until(lambda: sum(outcomes(worker).get("alive", 0) for worker in brokers.workers) == 12)
            assert await removals(brokers.workers[0]) == []


async def test_a_network_mass_disconnect_removes_no_broker_and_raises_an_alarm(
    store_url: str, namespace_name: str
) -> None:
    """All connections end and no broker answers. Two per worker are too few to be recognised by one worker alone."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            cut = await _connect_all(brokers, [hosts.silent() for _ in range(6)])
            for worker, connection in cut:
                lose(worker, connection)
            await until(lambda: sum(outcomes(worker).get("mass_disconnect", 0) for worker in brokers.workers) == 6)
            assert await removals(brokers.workers[0]) == []
            assert [mass_disconnects(worker) for worker in brokers.workers] == [1, 1, 1]


async def test_a_mass_disconnect_of_one_worker_is_recognised_by_its_own_share(
    store_url: str, namespace_name: str
) -> None:
    """Three of thirty sessions are a small share of all, but all that this worker has."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, second = brokers.workers
            for _ in range(27):
                await brokers.join(second, hosts.accepting())
            cut = [await brokers.join(first, hosts.silent()) for _ in range(3)]
            lose(first, *cut)
            await until(lambda: outcomes(first) == {"mass_disconnect": 3})
            assert await removals(first) == []


async def test_a_few_silent_brokers_among_many_are_removed(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            for _ in range(17):
                await brokers.join(first, hosts.accepting())
            cut = [await brokers.join(first, hosts.silent()) for _ in range(3)]
            lose(first, *cut)
            await until(lambda: outcomes(first) == {"removed_silent": 3})


async def test_a_refused_dial_in_a_mass_disconnect_is_no_proof_of_death(store_url: str, namespace_name: str) -> None:
    """The balancer cuts all connections, and a firewall rejects those to the brokers."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            cut = await _connect_all(brokers, [hosts.refusing() for _ in range(9)])
            await brokers.join(brokers.workers[0], hosts.accepting())
            for worker, connection in cut:
                lose(worker, connection)
            await until(lambda: sum(outcomes(worker).get("mass_disconnect", 0) for worker in brokers.workers) == 9)
            assert await removals(brokers.workers[0]) == []


async def test_connections_that_are_lost_one_after_another_are_held_beyond_the_share(
    store_url: str, namespace_name: str
) -> None:
    """No grace has enough of them for a mass disconnect, but within a minute they are more than the share."""
    slow = {"connection_grace_ms": 200, "mass_disconnect_minimum": 100}
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2, **slow) as brokers:
            first, _ = brokers.workers
            cut = [await brokers.join(first, hosts.refusing()) for _ in range(20)]
            for connection in cut:
                lose(first, connection)
                await asyncio.sleep(0.1)
            await until(lambda: sum(outcomes(first).values()) == 20)
            assert outcomes(first) == {"removed_refused": 6, "held": 14}
            state = await first.registry.expiry_state()
            assert state.held
            await first.registry.release_expiry(CALLER)
            await until(brokers.all_show)


async def test_a_session_of_an_established_broker_outside_the_networks_keeps_its_deadline(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2, dial_networks="10.0.0.0/8") as brokers:
            first, _ = brokers.workers
            lose(first, await brokers.join(first, hosts.refusing()))
            await until(lambda: outcomes(first) == {"not_dialled": 1})
            assert await removals(first) == []


async def test_a_new_broker_outside_the_networks_is_removed_whatever_listens_there(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            await brokers.join(first, hosts.accepting())
            await make_old(first.namespace)
            for address in (hosts.refusing(), hosts.accepting()):
                lose(first, await brokers.join(first, address))
            await until(lambda: outcomes(first) == {"removed_not_dialled": 2})
            assert brokers.all_show("broker-1")


async def test_a_connection_that_ends_during_its_registration_is_lost_afterwards(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            connection = FakeConnection()
            joining = asyncio.create_task(brokers.join(first, hosts.refusing(), connection))
            await asyncio.sleep(0)
            lose(first, connection)
            await joining
            await until(lambda: outcomes(first) == {"removed_refused": 1})
            assert len(first.registry.sessions) == 0


async def test_a_registration_over_a_closed_connection_opens_no_session(store_url: str, namespace_name: str) -> None:
    """The registration had been waiting in the port's queue."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=1) as brokers:
            (first,) = brokers.workers
            connection = FakeConnection()
            lose(first, connection)
            await brokers.join(first, hosts.refusing(), connection)
            assert len(first.registry.sessions) == 0
            assert await first.client.call("EXISTS", first.namespace.keys.of("sessions", first.name)) == 0


@pytest.mark.parametrize("has_seen_it", [True, False])
async def test_a_registration_over_a_closed_connection_takes_no_seat_of_another_address(
    store_url: str, namespace_name: str, has_seen_it: bool
) -> None:
    """A suspended worker finds it when it continues. The broker has been started at another address meanwhile."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            suspended, other = brokers.workers
            former, new = registration(hosts.refusing()), registration(hosts.refusing())
            connection = await brokers.register(suspended, former)
            await brokers.register(other, new)
            if has_seen_it:
                await suspended.registry.wait_for_version(other.replica.version)
            lose(suspended, connection)
            result = await register(suspended.registry, former, connection=connection)
            assert result.status == "turned-down"
            for worker in brokers.workers:
                assert worker.replica.table.groups[new.broker].addresses == {0: new.address}


async def test_a_registration_over_a_closed_connection_is_a_heartbeat(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=1) as brokers:
            (worker,) = brokers.workers
            broker = registration(hosts.accepting())
            connection = await brokers.register(worker, broker)
            lose(worker, connection)
            before = await deadline_of(worker.namespace, broker.instance_name)
            await asyncio.sleep(0.005)
            assert (await register(worker.registry, broker, connection=connection)).status == "unchanged"
            assert await deadline_of(worker.namespace, broker.instance_name) > before


async def test_the_connection_of_a_former_incarnation_does_not_remove_the_new_one(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2, connection_grace_ms=0) as brokers:
            first, second = brokers.workers
            address = hosts.refusing()
            former = await brokers.join(first, address, broker="broker-1")
            await second.registry.unregister("east", "broker-1", 0, CALLER)
            await brokers.join(second, address, broker="broker-1")
            lose(first, former)
            await until(lambda: _has_no_session_or_loss(first))
            assert brokers.all_show("broker-1")


async def _has_no_session_or_loss(worker: InProcessWorker) -> bool:
    keys = worker.namespace.keys
    return not int(await worker.client.call("EXISTS", keys.of("sessions", worker.name), keys.table("lost")))


async def test_after_an_unregistration_the_end_of_the_connection_removes_nothing(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            address = hosts.refusing()
            connection = await brokers.join(first, address)
            taken_effect = first.registry.queue_unregistration(
                "east", "broker-1", 0, address, CALLER, connection=connection
            )
            assert taken_effect is not None
            await taken_effect
            assert len(first.registry.sessions) == 0
            await until(lambda: _has_no_session_or_loss(first))
            lose(first, connection)
            (removed,) = await removals(first)
            assert removed["cause"] == "unregistered"
