"""Sessions in the store follow the connections of a worker, also through failures of the store."""

import asyncio

import pytest

from routebook.errors import StoreUnavailableError
from routebook.registry import sessions as sessions_module
from routebook.replica.feed import Feed
from routebook.store.history import changes_between
from routebook.store.recovery import begin_history
from routebook.store.sessions import LostConnection
from tests.reference.build import A, registration, version
from tests.registry.fleets import fleet, outcomes
from tests.support.broker_hosts import BrokerHosts
from tests.support.fake_connection import FakeConnection
from tests.support.fault_proxy import FaultProxy
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.scripts import make_due
from tests.support.waiting import until

SENT = b"what the broker sent"
INSTANCE_NAME = registration(A).instance_name


async def stored_sessions(worker: InProcessWorker, through: InProcessWorker | None = None) -> dict[str, str]:
    """Instance name → incarnation of the sessions that the store has for `worker`."""
    other = through or worker
    flat = await other.client.call("HGETALL", other.namespace.keys.of("sessions", worker.name))
    return {flat[i].decode(): flat[i + 1].decode().split(" ")[1] for i in range(0, len(flat), 2)}


def incarnation_of(worker: InProcessWorker, instance_name: str = INSTANCE_NAME) -> str:
    return worker.replica.table.instances[instance_name].incarnation


async def stamp_of(worker: InProcessWorker) -> int:
    """The stamp of the session, which the store keeps with the incarnation."""
    broker = await worker.client.call("HGET", worker.namespace.keys.of("sessions", worker.name), INSTANCE_NAME)
    return int(broker.split(b" ")[0])


async def test_only_the_first_registration_of_a_connection_opens_a_session(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        connection = FakeConnection()
        await register(worker.registry, registration(), sent=SENT, connection=connection)
        assert await stored_sessions(worker) == {INSTANCE_NAME: incarnation_of(worker)}
        first = await stamp_of(worker)
        for _ in range(3):
            repeated = await register(worker.registry, registration(), connection=connection, sent=SENT)
            assert repeated.status == "unchanged"
            await register(worker.registry, registration(), connection=connection)
        assert await stamp_of(worker) == first


async def test_a_touch_over_another_connection_opens_a_session_for_it(store_url: str, namespace_name: str) -> None:
    async with (
        running_worker(store_url, namespace_name) as here,
        running_worker(store_url, namespace_name) as there,
    ):
        await register(here.registry, registration(), sent=SENT)
        assert await stored_sessions(here) == {}
        await there.replica.wait_for(here.replica.version, 30_000)
        await register(there.registry, registration(), connection=FakeConnection(), sent=SENT)
        assert await stored_sessions(there) == {INSTANCE_NAME: incarnation_of(here)}


async def test_a_new_incarnation_gets_a_session_of_its_own(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        connection = FakeConnection()
        await register(worker.registry, registration(), connection=connection)
        former = incarnation_of(worker)
        await worker.registry.unregister("east", "broker-a", 0, CALLER)
        await register(worker.registry, registration(), connection=connection)
        assert incarnation_of(worker) != former
        assert await stored_sessions(worker) == {INSTANCE_NAME: incarnation_of(worker)}


async def test_a_registration_that_is_turned_down_opens_no_session(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration(data_version=version(state=2)))
        other = registration("127.0.0.7:10911", data_version=version(state=1))
        await register(worker.registry, other, connection=FakeConnection())
        assert await stored_sessions(worker) == {}
        assert len(worker.registry.sessions) == 0


async def test_a_call_without_an_answer_may_have_opened_a_session(store_url: str, namespace_name: str) -> None:
    """The connection counts as bound to the broker, so its end removes the broker."""
    with BrokerHosts() as hosts:
        async with (
            FaultProxy.before(store_url) as proxy,
            fleet(store_url, namespace_name, size=1) as others,
            running_worker(proxy.url, namespace_name, connection_grace_ms=300, store_timeout_ms=1000) as worker,
        ):
            broker = registration(hosts.refusing())
            (other,) = others.workers
            await register(other.registry, broker)
            await worker.replica.wait_for(other.replica.version, 30_000)
            connection = FakeConnection()
            proxy.hold_answers()
            with pytest.raises(StoreUnavailableError):
                await register(worker.registry, broker, connection=connection)
            assert len(worker.registry.sessions) == 1
            await until(lambda: _has_session(worker, other, broker.instance_name))
            worker.registry.sessions.connection_closed(connection)
            proxy.heal()
            await until(lambda: other.registry.brokers() == ())
            await until(lambda: outcomes(worker) == {"removed_refused": 1})


async def _has_session(worker: InProcessWorker, through: InProcessWorker, instance_name: str) -> bool:
    return instance_name in await stored_sessions(worker, through)


async def test_closing_a_session_waits_for_the_store(store_url: str, namespace_name: str) -> None:
    """The grace begins when the store records the loss: before that, no broker could have returned."""
    with BrokerHosts() as hosts:
        async with (
            FaultProxy.before(store_url) as proxy,
            fleet(store_url, namespace_name, size=1) as others,
            running_worker(proxy.url, namespace_name, connection_grace_ms=300, store_timeout_ms=1000) as worker,
        ):
            (other,) = others.workers
            connection = FakeConnection()
            await register(worker.registry, registration(hosts.refusing()), connection=connection)
            await proxy.refuse()
            worker.registry.sessions.connection_closed(connection)
            await until(lambda: not worker.client.is_connected)
            assert other.registry.brokers() == ("broker-a",)
            await proxy.accept()
            await until(lambda: other.registry.brokers() == ())
            removed = (await changes_between(other.namespace, 0, 1000))[-1].fields
            assert removed["cause"] == "connection-lost"


async def test_a_worker_that_is_cut_off_from_the_store_closes_the_connections_of_its_brokers(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers reconnect through the balancer to another worker. When the store is back, no broker is removed."""
    monkeypatch.setattr(sessions_module, "MOVE_WITHIN_S", 0.5)
    with BrokerHosts() as hosts:
        async with (
            FaultProxy.before(store_url) as proxy,
            fleet(store_url, namespace_name, size=1) as others,
            running_worker(proxy.url, namespace_name, store_cut_off_ms=3000, store_timeout_ms=1000) as worker,
        ):
            (other,) = others.workers
            worker.lead()
            own_brokers = [registration(hosts.accepting(), broker=f"broker-{n}") for n in range(4)]
            connections = [FakeConnection() for _ in own_brokers]
            for broker, connection in zip(own_brokers, connections, strict=True):
                await register(worker.registry, broker, connection=connection)
            client = FakeConnection()
            await proxy.refuse()
            await until(lambda: all(connection.closed_for for connection in connections), timeout_s=30)
            assert client.closed_for == []
            for broker, connection in zip(own_brokers, connections, strict=True):
                worker.registry.sessions.connection_closed(connection)
                await register(other.registry, broker, connection=FakeConnection())
            assert len(worker.registry.sessions) == 0
            await proxy.accept()
            await until(lambda: outcomes(worker) == {"elsewhere": 4})
            assert len(other.registry.brokers()) == 4


async def test_an_expiry_closes_the_connection_on_its_worker(store_url: str, namespace_name: str) -> None:
    async with fleet(store_url, namespace_name) as brokers:
        first, second, third = brokers.workers
        connection, bystander = FakeConnection(), FakeConnection()
        await register(third.registry, registration(), connection=connection)
        await register(second.registry, registration("127.0.0.8:1", broker="broker-b"), connection=bystander)
        await make_due(first.namespace, INSTANCE_NAME)
        await until(lambda: connection.closed_for)
        assert "silent" in connection.closed_for[0]
        assert bystander.closed_for == []


async def test_an_expiry_of_an_earlier_incarnation_closes_nothing(store_url: str, namespace_name: str) -> None:
    async with fleet(store_url, namespace_name, size=2) as brokers:
        first, second = brokers.workers
        former, later = FakeConnection(), FakeConnection()
        await register(second.registry, registration(), connection=former)
        await make_due(first.namespace, INSTANCE_NAME)
        await until(lambda: former.closed_for)
        await register(second.registry, registration(), connection=later)
        assert later.closed_for == []


async def test_a_worker_that_was_considered_dead_opens_its_sessions_again(store_url: str, namespace_name: str) -> None:
    async with fleet(store_url, namespace_name, size=2) as brokers:
        first, second = brokers.workers
        await register(second.registry, registration(), connection=FakeConnection())
        await until(lambda: _has_session(second, first, INSTANCE_NAME))
        await first.client.call("ZADD", first.namespace.keys.table("workers"), 1, second.name)
        await first.client.call("DEL", first.namespace.keys.of("sessions", second.name))
        await first.client.call("HDEL", first.namespace.keys.table("workers:about"), second.name)
        await until(lambda: _has_session(second, first, INSTANCE_NAME))


async def test_sessions_that_a_failover_lost_are_opened_again(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration(), connection=FakeConnection())
        await worker.client.call("DEL", worker.namespace.keys.of("sessions", worker.name))
        history = worker.replica.history
        await begin_history(worker.namespace, history=history)
        await until(lambda: worker.replica.history != history)
        await until(lambda: _has_session(worker, worker, INSTANCE_NAME))


async def test_sessions_lost_without_a_change_of_the_history_are_opened_again(
    store_url: str, namespace_name: str
) -> None:
    """A failover may lose nothing but heartbeats and sessions. The history is the same afterwards."""
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration(), connection=FakeConnection())
        for _ in range(2):  # for the first one, the worker's first look at the history would be enough
            await worker.client.call("DEL", worker.namespace.keys.of("sessions", worker.name))
            await lose_connections_to_the_store(worker)
            await until(lambda: _has_session(worker, worker, INSTANCE_NAME))


async def test_sessions_that_came_before_their_instances_are_opened_at_the_end_of_a_recovery(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an emptied store a session is refused until its instance is there again."""
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration(), connection=FakeConnection())
        await asyncio.sleep(3 * sessions_module.WATCH_S)
        with monkeypatch.context() as recovering:
            recovering.setattr(Feed, "is_recovering", True)
            await asyncio.sleep(3 * sessions_module.WATCH_S)
            await worker.client.call("DEL", worker.namespace.keys.of("sessions", worker.name))
            await asyncio.sleep(3 * sessions_module.WATCH_S)
            assert await _has_no_session(worker)
        await until(lambda: _has_session(worker, worker, INSTANCE_NAME))


async def test_a_closed_session_that_a_failover_brings_back_is_closed_again(
    store_url: str, namespace_name: str
) -> None:
    """Otherwise a broker would seem to be connected here for as long as this worker runs."""
    async with running_worker(store_url, namespace_name) as worker:
        connection = FakeConnection()
        await register(worker.registry, registration(), connection=connection)
        key = worker.namespace.keys.of("sessions", worker.name)
        session = await worker.client.call("HGET", key, INSTANCE_NAME)
        loss = LostConnection(INSTANCE_NAME, "broker-a", 0, incarnation_of(worker), 1)
        for _ in range(2):  # the second time, while the loss waits to be reported again
            worker.registry.sessions.connection_closed(connection)
            await until(lambda: _has_no_session(worker))
            await worker.client.call("HSET", key, INSTANCE_NAME, session)
            await lose_connections_to_the_store(worker)
            worker.registry.sessions._report_again(loss)
            await until(lambda: _has_no_session(worker))


async def test_a_session_that_is_being_opened_is_not_closed(store_url: str, namespace_name: str) -> None:
    """Its call has been carried out, and the reply has not arrived, when the sessions are compared."""
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        sessions, connection = worker.registry.sessions, FakeConnection()
        key = worker.namespace.keys.of("sessions", worker.name)
        with sessions.opening(connection, INSTANCE_NAME) as opening:
            session = f"{opening.mark.stamp} {incarnation_of(worker)}"
            await worker.client.call("HSET", key, INSTANCE_NAME, session)
            sessions.reopen()
            await until(lambda: not sessions._must_compare)
            opening.opened(incarnation_of(worker))
        sessions.reopen()
        await until(lambda: not sessions._must_compare)
        assert await stored_sessions(worker) == {INSTANCE_NAME: incarnation_of(worker)}


async def lose_connections_to_the_store(worker: InProcessWorker) -> None:
    epoch = worker.client.epoch
    for link in worker.client._open_links.copy():
        link.end("the store failed over")
    await until(lambda: worker.client.epoch != epoch)


async def test_a_session_of_a_closed_connection_is_not_opened_again(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        connection = FakeConnection()
        await register(worker.registry, registration(), connection=connection)
        worker.registry.sessions.reopen()
        worker.registry.sessions.connection_closed(connection)
        await until(lambda: _has_no_session(worker))
        worker.registry.sessions.reopen()
        assert await stored_sessions(worker) == {}


async def _has_no_session(worker: InProcessWorker) -> bool:
    return await stored_sessions(worker) == {}
