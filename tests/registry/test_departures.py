"""104: queued at once, carried out in batches, of the stay that its connection carries."""

from routebook.model.broker import DataVersion
from tests.reference.build import A, B, registration, version
from tests.support.fake_connection import FakeConnection
from tests.support.in_process import CALLER, running_worker
from tests.support.registering import register


async def test_a_departure_takes_effect_and_shows_here(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        left = worker.registry.queue_unregistration("east", "broker-a", 0, A, CALLER)
        assert left is not None
        await left
        assert worker.registry.brokers() == ()


async def test_a_departure_that_names_no_instance_is_ignored(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        for cluster, broker, address in (("", "broker-a", A), ("east", "", A), ("east", "broker-a", "")):
            left = worker.registry.queue_unregistration(cluster, broker, 0, address, CALLER)
            assert left is not None
            await left
        assert worker.registry.brokers() == ("broker-a",)


async def test_beyond_the_capacity_a_departure_is_turned_away(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name, unregister_broker_queue_capacity=1) as worker:
        await register(worker.registry, registration())
        first = worker.registry.queue_unregistration("east", "broker-a", 0, A, CALLER)
        assert worker.registry.queue_unregistration("east", "broker-a", 0, B, CALLER) is None
        assert first is not None
        await first
        assert worker.registry.queue_unregistration("east", "broker-a", 0, B, CALLER) is not None


async def test_a_departure_is_of_the_stay_that_its_connection_carries(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as here, running_worker(store_url, namespace_name) as there:
        former, later = FakeConnection(), FakeConnection()
        await register(here.registry, registration(), connection=former)
        await there.registry.unregister("east", "broker-a", 0, CALLER)
        await register(there.registry, registration(), connection=later)
        left = here.registry.queue_unregistration("east", "broker-a", 0, A, CALLER, connection=former)
        assert left is not None
        await left
        assert there.registry.brokers() == ("broker-a",)
        left = there.registry.queue_unregistration("east", "broker-a", 0, A, CALLER, connection=later)
        assert left is not None
        await left
        assert there.registry.brokers() == ()


async def test_a_departure_after_a_turned_down_registration_is_by_address(store_url: str, namespace_name: str) -> None:
    """Turned down in one group, the address has no live entry any more, and is seated in the other group still."""
    async with running_worker(store_url, namespace_name) as worker:
        said, connection = worker.registry, FakeConnection()
        await register(said, registration(A, broker="broker-b"), connection=connection)
        await register(said, registration(B, data_version=version(state=1)))
        told = await register(said, registration(A), connection=connection)
        assert told.status == "turned-down"
        left = said.queue_unregistration("east", "broker-b", 0, A, CALLER, connection=connection)
        assert left is not None
        await left
        assert said.brokers() == ("broker-a",)


async def test_a_departure_after_one_from_elsewhere_is_by_address(store_url: str, namespace_name: str) -> None:
    """Told off under another group's name, the address has no live entry any more, and keeps its seat: as Apache's."""
    async with running_worker(store_url, namespace_name) as worker:
        said, own, other = worker.registry, FakeConnection(), FakeConnection()
        await register(said, registration(), connection=own)
        for broker, connection in (("broker-b", other), ("broker-a", own)):
            assert said.brokers() == ("broker-a",)
            left = said.queue_unregistration("east", broker, 0, A, CALLER, connection=connection)
            assert left is not None
            await left
        assert said.brokers() == ()


async def test_the_question_for_the_version_is_answered_for_known_and_unknown(
    store_url: str, namespace_name: str
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        ask = worker.registry.query_data_version
        assert await ask("east", A, version(), CALLER) == (True, None)
        await register(worker.registry, registration())
        assert await ask("east", A, version(), CALLER) == (False, version())
        assert await ask("east", A, DataVersion(0, 1, 1), CALLER) == (True, version())
        assert await ask("east", A, None, CALLER) == (True, version())
        assert await ask("west", A, version(), CALLER) == (True, None)


async def test_a_heartbeat_of_an_unknown_address_makes_nothing(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await worker.registry.heartbeat_address("east", A, CALLER)
        assert worker.registry.brokers() == ()
