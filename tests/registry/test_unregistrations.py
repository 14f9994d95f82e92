"""Unregistering over the remoting port (104): queued, carried out in batches, for the connection's incarnation."""

from routebook.model.broker import DataVersion
from tests.reference.build import A, B, registration, version
from tests.support.fake_connection import FakeConnection
from tests.support.in_process import CALLER, running_worker
from tests.support.registering import register


async def test_an_unregistration_takes_effect_and_is_visible_here(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        removed = worker.registry.queue_unregistration("east", "broker-a", 0, A, CALLER)
        assert removed is not None
        await removed
        assert worker.registry.brokers() == ()


async def test_an_unregistration_without_cluster_broker_or_address_is_ignored(
    store_url: str, namespace_name: str
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        for cluster, broker, address in (("", "broker-a", A), ("east", "", A), ("east", "broker-a", "")):
            removed = worker.registry.queue_unregistration(cluster, broker, 0, address, CALLER)
            assert removed is not None
            await removed
        assert worker.registry.brokers() == ("broker-a",)


async def test_an_unregistration_is_refused_when_the_queue_is_full(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, unregister_broker_queue_capacity=1) as worker:
        await register(worker.registry, registration())
        first = worker.registry.queue_unregistration("east", "broker-a", 0, A, CALLER)
        assert worker.registry.queue_unregistration("east", "broker-a", 0, B, CALLER) is None
        assert first is not None
        await first
        assert worker.registry.queue_unregistration("east", "broker-a", 0, B, CALLER) is not None


async def test_an_unregistration_removes_the_incarnation_of_its_connection(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as here, running_worker(store_url, namespace_name) as there:
        former, later = FakeConnection(), FakeConnection()
        await register(here.registry, registration(), connection=former)
        await there.registry.unregister("east", "broker-a", 0, CALLER)
        await register(there.registry, registration(), connection=later)
        removed = here.registry.queue_unregistration("east", "broker-a", 0, A, CALLER, connection=former)
        assert removed is not None
        await removed
        assert there.registry.brokers() == ("broker-a",)
        removed = there.registry.queue_unregistration("east", "broker-a", 0, A, CALLER, connection=later)
        assert removed is not None
        await removed
        assert there.registry.brokers() == ()


async def test_an_unregistration_after_a_turned_down_registration_is_by_address(
    store_url: str, namespace_name: str
) -> None:
    """The registration was turned down, so the address has no instance any more but keeps its old seat."""
    async with running_worker(store_url, namespace_name) as worker:
        registry, connection = worker.registry, FakeConnection()
        await register(registry, registration(A, broker="broker-b"), connection=connection)
        await register(registry, registration(B, data_version=version(state=1)))
        result = await register(registry, registration(A), connection=connection)
        assert result.status == "turned-down"
        removed = registry.queue_unregistration("east", "broker-b", 0, A, CALLER, connection=connection)
        assert removed is not None
        await removed
        assert registry.brokers() == ("broker-a",)


async def test_an_unregistration_after_one_under_another_name_is_by_address(
    store_url: str, namespace_name: str
) -> None:
    """After an unregistration under another group's name the address has no instance but keeps its seat, as in Apache's
    name server.
    """
    async with running_worker(store_url, namespace_name) as worker:
        registry, own, other = worker.registry, FakeConnection(), FakeConnection()
        await register(registry, registration(), connection=own)
        for broker, connection in (("broker-b", other), ("broker-a", own)):
            assert registry.brokers() == ("broker-a",)
            removed = registry.queue_unregistration("east", broker, 0, A, CALLER, connection=connection)
            assert removed is not None
            await removed
        assert registry.brokers() == ()


async def test_the_data_version_is_compared_for_known_and_unknown_brokers(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        ask = worker.registry.query_data_version
        assert await ask("east", A, version(), CALLER) == (True, None)
        await register(worker.registry, registration())
        assert await ask("east", A, version(), CALLER) == (False, version())
        assert await ask("east", A, DataVersion(0, 1, 1), CALLER) == (True, version())
        assert await ask("east", A, None, CALLER) == (True, version())
        assert await ask("west", A, version(), CALLER) == (True, None)


async def test_a_heartbeat_of_an_unknown_address_creates_nothing(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await worker.registry.heartbeat_address("east", A, CALLER)
        assert worker.registry.brokers() == ()
