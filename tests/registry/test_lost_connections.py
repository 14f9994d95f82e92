"""The end of a connection: who is removed by it, and who is not. Several workers on one store, real listeners."""

import asyncio

from routebook.store.history import changes_between
from tests.reference.build import registration
from tests.registry.fleets import Fleet, alarms, fleet, outcomes
from tests.support.broker_hosts import BrokerHosts
from tests.support.fake_connection import FakeConnection
from tests.support.in_process import CALLER, InProcessWorker
from tests.support.waiting import until


def lose(worker: InProcessWorker, *connections: FakeConnection) -> None:
    for connection in connections:
        worker.registry.sessions.connection_closed(connection)


async def removals(worker: InProcessWorker) -> list[dict[str, object]]:
    changes = await changes_between(worker.namespace, 0, 1000)
    return [dict(change.fields) for change in changes if change.kind == "broker-removed"]


async def test_a_dead_broker_is_gone_on_every_worker_and_the_history_says_why(
    store_url: str, namespace_name: str
) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            connection = await brokers.join(first, hosts.refusing())
            await brokers.join(first, hosts.accepting())
            await until(lambda: brokers.all_know("broker-1", "broker-2"))
            lose(first, connection)
            await until(lambda: brokers.all_know("broker-2"))
            (removed,) = await removals(first)
            assert removed["cause"] == "connection-lost"
            assert isinstance(removed["lost_ms"], int)
            assert removed["actor"] == first.name
            await until(lambda: outcomes(first) == {"removed_refused": 1})
            assert len(first.registry.sessions) == 1


async def test_who_does_not_answer_is_removed_as_well(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            connection = await brokers.join(first, hosts.silent())
            lose(first, connection)
            await until(brokers.all_know)
            await until(lambda: outcomes(first) == {"removed_silent": 1})


async def test_who_still_listens_keeps_its_deadline(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, *_ = brokers.workers
            lose(first, await brokers.join(first, hosts.accepting()))
            await until(lambda: outcomes(first) == {"alive": 1})
            await until(lambda: brokers.all_know("broker-1"))
            await until(lambda: _is_settled(first))


async def _lost(worker: InProcessWorker) -> int:
    return int(await worker.client.call("HLEN", worker.namespace.keys.table("lost")))


async def _is_settled(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 0


async def test_every_broker_on_a_lost_connection_counts(store_url: str, namespace_name: str) -> None:
    """A container has several; Apache's name server notices the first of them only."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            connection = FakeConnection()
            for _ in range(3):
                await brokers.join(first, hosts.refusing(), connection)
            assert len(first.registry.sessions) == 3
            lose(first, connection)
            await until(brokers.all_know)


async def test_a_broker_with_another_connection_is_not_even_looked_at(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2, connection_grace_ms=0) as brokers:
            first, second = brokers.workers
            said = registration(hosts.refusing(), broker="broker-1")
            here, also_here = await brokers.register(first, said), await brokers.register(first, said)
            there = await brokers.register(second, said)
            lose(first, here, also_here)
            await until(lambda: outcomes(first) == {"elsewhere": 1})
            assert brokers.all_know("broker-1")
            lose(second, there)
            await until(brokers.all_know)
            await until(lambda: outcomes(second) == {"removed_at_once": 1})


async def test_a_broker_that_moves_to_another_worker_within_its_grace_stays(
    store_url: str, namespace_name: str
) -> None:
    """It is refused when it is dialled, for it has just started again."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, _ = brokers.workers
            said = registration(hosts.refusing(), broker="broker-1")
            lose(first, await brokers.register(first, said))
            await until(lambda: _is_lost(first))
            await brokers.register(second, said)
            await until(lambda: outcomes(first) == {"returned": 1})
            assert await removals(first) == []


async def _is_lost(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 1


async def test_without_a_grace_a_broker_goes_at_once_as_with_apache(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, connection_grace_ms=0) as brokers:
            first, *_ = brokers.workers
            lose(first, await brokers.join(first, hosts.accepting()))
            await until(brokers.all_know)


async def test_a_worker_that_dies_takes_nobody_with_it(store_url: str, namespace_name: str) -> None:
    """Its sessions are forgotten with it; brokers that are gone too are removed by their deadlines."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            await brokers.join(third, hosts.refusing())
            await brokers.join(third, hosts.accepting())
            await third.end()
            brokers.workers.remove(third)
            await first.client.call("ZADD", first.namespace.keys.table("workers"), 1, third.name)
            await until(lambda: _is_forgotten(first, third))
            assert brokers.all_know("broker-1", "broker-2")
            assert await first.client.call("EXISTS", first.namespace.keys.of("sessions", third.name)) == 0
            assert (outcomes(first), outcomes(second)) == ({}, {})


async def _is_forgotten(asked: InProcessWorker, dead: InProcessWorker) -> bool:
    score = await asked.client.call("ZSCORE", asked.namespace.keys.table("workers"), dead.name)
    return score is None


async def test_a_draining_worker_removes_nobody(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, connection_grace_ms=0) as brokers:
            first, second, third = brokers.workers
            connections = [await brokers.join(third, hosts.refusing()) for _ in range(2)]
            third.registry.sessions.drain()
            lose(third, *connections)
            await third.presence.deregister()
            await third.end()
            brokers.workers.remove(third)
            await until(lambda: _is_forgotten(first, third))
            await until(lambda: brokers.all_know("broker-1", "broker-2"))
            assert [outcomes(one) for one in (first, second, third)] == [{}, {}, {}]


async def test_a_draining_worker_leaves_what_it_looked_into_to_the_leader(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, _, third = brokers.workers
            lose(third, await brokers.join(third, hosts.refusing()))
            await until(lambda: _is_lost(first))
            third.registry.sessions.drain()
            await third.presence.deregister()
            await third.end()
            brokers.workers.remove(third)
            await until(brokers.all_know)
            assert outcomes(third) == {}


async def test_the_leader_finishes_what_a_dead_worker_was_looking_into(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            first, second, third = brokers.workers
            lose(third, await brokers.join(third, hosts.refusing()))
            lose(third, await brokers.join(third, hosts.accepting()))
            await until(lambda: _both_are_lost(first))
            await third.end()
            brokers.workers.remove(third)
            await first.client.call("ZADD", first.namespace.keys.table("workers"), 1, third.name)
            await until(lambda: brokers.all_know("broker-2"))
            await until(lambda: _merged(first, second) == {"removed_refused": 1, "alive": 1})


async def _both_are_lost(worker: InProcessWorker) -> bool:
    return await _lost(worker) == 2


def _merged(*workers: InProcessWorker) -> dict[str, int]:
    return {name: count for worker in workers for name, count in outcomes(worker).items()}


async def _connect_all(brokers: Fleet, addresses: list[str]) -> list[tuple[InProcessWorker, FakeConnection]]:
    """One after the other, to the workers in turn."""
    found = []
    for n, address in enumerate(addresses):
        worker = brokers.workers[n % len(brokers.workers)]
        found.append((worker, await brokers.join(worker, address)))
    return found


async def test_a_balancer_that_restarts_and_cuts_everyone_removes_nobody(store_url: str, namespace_name: str) -> None:
    """All connections of all workers end at once; all brokers are well, and speak again only at their next period."""
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
    """Everyone is cut off, and nobody can be reached; only two of each worker's are not enough to see it alone."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            cut = await _connect_all(brokers, [hosts.silent() for _ in range(6)])
            for worker, connection in cut:
                lose(worker, connection)
            await until(lambda: sum(outcomes(worker).get("mass_disconnect", 0) for worker in brokers.workers) == 6)
            assert await removals(brokers.workers[0]) == []
            assert [alarms(worker) for worker in brokers.workers] == [1, 1, 1]


async def test_the_network_of_one_worker_may_be_ill_alone(store_url: str, namespace_name: str) -> None:
    """Three of thirty are a small share of all, but all that this worker has."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, second = brokers.workers
            for _ in range(27):
                await brokers.join(second, hosts.accepting())
            cut = [await brokers.join(first, hosts.silent()) for _ in range(3)]
            lose(first, *cut)
            await until(lambda: outcomes(first) == {"mass_disconnect": 3})
            assert await removals(first) == []


async def test_a_few_silent_ones_of_many_are_dead(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            for _ in range(17):
                await brokers.join(first, hosts.accepting())
            cut = [await brokers.join(first, hosts.silent()) for _ in range(3)]
            lose(first, *cut)
            await until(lambda: outcomes(first) == {"removed_silent": 3})


async def test_a_refusal_is_a_fact_however_many_refuse(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name) as brokers:
            cut = await _connect_all(brokers, [hosts.refusing() for _ in range(9)])
            await brokers.join(brokers.workers[0], hosts.accepting())
            for worker, connection in cut:
                lose(worker, connection)
            await until(lambda: brokers.all_know("broker-10"))
            assert [alarms(worker) for worker in brokers.workers] == [0, 0, 0]


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


async def test_what_comes_over_a_connection_that_is_closed_opens_nothing(store_url: str, namespace_name: str) -> None:
    """The port had it in its queue."""
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=1) as brokers:
            (first,) = brokers.workers
            connection = FakeConnection()
            lose(first, connection)
            await brokers.join(first, hosts.refusing(), connection)
            assert len(first.registry.sessions) == 0
            assert await first.client.call("EXISTS", first.namespace.keys.of("sessions", first.name)) == 0


async def test_a_new_stay_is_not_removed_for_the_connection_of_the_former_one(
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
            await until(lambda: _nobody_is_lost_or_held(first))
            assert brokers.all_know("broker-1")


async def _nobody_is_lost_or_held(worker: InProcessWorker) -> bool:
    keys = worker.namespace.keys
    return not int(await worker.client.call("EXISTS", keys.of("sessions", worker.name), keys.table("lost")))


async def test_a_departure_said_on_the_connection_leaves_nothing_to_lose(store_url: str, namespace_name: str) -> None:
    with BrokerHosts() as hosts:
        async with fleet(store_url, namespace_name, size=2) as brokers:
            first, _ = brokers.workers
            address = hosts.refusing()
            connection = await brokers.join(first, address)
            left = first.registry.queue_unregistration("east", "broker-1", 0, address, CALLER, connection=connection)
            assert left is not None
            await left
            assert len(first.registry.sessions) == 0
            await until(lambda: _nobody_is_lost_or_held(first))
            lose(first, connection)
            (removed,) = await removals(first)
            assert removed["cause"] == "unregistered"
