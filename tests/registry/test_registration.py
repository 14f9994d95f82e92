"""Registrations: visible when answered, cheap when nothing changed, correct when other workers register as well."""

import asyncio
import json
from dataclasses import replace

import pytest

from routebook.errors import InvalidInputError, NotFoundError, RefusedError
from routebook.model.broker import QueueData, Registration, Seat
from routebook.store.history import changes_between
from tests.reference.build import A, B, mapping, registration, topics, version
from tests.support.in_process import CALLER, InProcessWorker, running_worker
from tests.support.registering import register
from tests.support.waiting import until


async def test_a_registration_is_visible_here_when_it_is_answered(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        for n in range(20):
            topic = f"topic-{n}"
            broker = registration(data_version=version(n), topics=topics("orders", topic))
            result = await register(worker.registry, broker)
            assert json.loads(worker.registry.find_route(topic))["brokerDatas"][0]["brokerAddrs"] == {"0": A}
            assert worker.replica.version >= result.version


async def test_another_worker_sees_it_and_has_the_same_digest(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as one, running_worker(store_url, namespace_name) as other:
        result = await register(one.registry, registration())
        await other.registry.wait_for_version(result.version)
        assert other.registry.find_route("orders") == one.registry.find_route("orders")
        assert other.replica.table.digest == one.replica.table.digest


async def test_a_repeated_registration_changes_nothing_on_any_worker(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as one, running_worker(store_url, namespace_name) as other:
        first = await register(one.registry, registration())
        await other.registry.wait_for_version(first.version)
        again = await register(other.registry, registration())
        assert (again.status, again.version) == ("unchanged", first.version)
        assert again.incarnation == first.incarnation


async def test_a_slave_gets_its_masters_address_even_when_nothing_changed(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration(A, 0))
        slave = registration(B, 1)
        for expected in ("changed", "unchanged"):
            result = await register(worker.registry, slave)
            assert (result.status, result.master_address) == (expected, A)
            assert result.master_ha_address == "127.0.0.1:10912"


async def test_concurrent_registrations_of_a_group_all_succeed(store_url: str, namespace_name: str) -> None:
    """Each worker compares with its own table. A registration that was overtaken starts over."""
    async with running_worker(store_url, namespace_name) as one, running_worker(store_url, namespace_name) as other:
        members = [
            registration(f"127.0.0.{n + 1}:10911", n, topics=topics("orders", f"own-{n}", "shared")) for n in range(20)
        ]
        workers = (one, other)
        await asyncio.gather(*(register(workers[n % 2].registry, broker) for n, broker in enumerate(members)))
        all_addresses = {n: f"127.0.0.{n + 1}:10911" for n in range(20)}
        await until(lambda: all(w.registry.broker("broker-a").group.addresses == all_addresses for w in workers))
        assert one.replica.table.digest == other.replica.table.digest


async def test_a_hundred_registrations_at_once_end_in_one_state(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as one, running_worker(store_url, namespace_name) as other:
        broker = [
            registration(
                f"127.0.1.{n}:10911", broker=f"broker-{n % 25}", broker_id=n // 25, topics=topics(f"t{n}", "all")
            )
            for n in range(100)
        ]
        await asyncio.gather(*(register((one if n % 3 else other).registry, r) for n, r in enumerate(broker)))
        await until(lambda: one.replica.table.digest == other.replica.table.digest)
        assert sum(len(one.registry.broker(name).group.addresses) for name in one.registry.brokers()) == 100
        changes = await changes_between(one.namespace, 0, 10_000)
        assert [change.version for change in changes] == list(range(1, len(changes) + 1))
        assert sum(change.kind == "broker-registered" for change in changes) == 100


async def test_one_topic_of_an_unknown_broker_is_refused_unless_the_table_is_complete(
    store_url: str, namespace_name: str
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        single = registration(topics=topics("only"))
        with pytest.raises(RefusedError, match="one topic"):
            await register(worker.registry, single)
        await register(worker.registry, replace(single, full=True))
        assert worker.registry.topics() == ("only",)


async def test_replacing_removes_what_is_not_named_and_merging_does_not(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        await register(worker.registry, registration(data_version=version(2), topics=topics("a", "b")))
        assert set(worker.registry.topics()) == {"orders", "payments", "a", "b"}
        only = registration(data_version=version(3), topics=topics("a", "b"), replace_topics=True)
        await register(worker.registry, only)
        assert set(worker.registry.topics()) == {"a", "b"}


async def test_the_deletion_option_applies_to_the_next_repeated_registration(
    store_url: str, namespace_name: str
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        await register(worker.registry, registration(data_version=version(2), topics=topics("a", "b")))
        await worker.registry.change_setting("delete_topic_with_broker_registration", "true", CALLER)
        await register(worker.registry, registration(data_version=version(2), topics=topics("a", "b")))
        assert set(worker.registry.topics()) == {"a", "b"}


async def test_a_table_of_ten_thousand_topics_appears_in_one_step(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as one, running_worker(store_url, namespace_name) as other:
        many = {f"topic-{n:05d}": QueueData(flags=n % 7) for n in range(10_000)}
        seen: set[int] = set()

        async def look() -> None:
            while True:
                seen.add(len(other.replica.view.queues_of("broker-a")))
                await asyncio.sleep(0)

        watching = asyncio.create_task(look())
        result = await register(one.registry, registration(topics=many))
        await other.registry.wait_for_version(result.version)
        await asyncio.sleep(0)
        watching.cancel()
        assert seen <= {0, 10_000}
        assert len(other.registry.topics()) == 10_000


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": ""},
        {"broker": "a\nb"},
        {"broker_id": -1},
        {"address": "nowhere"},
        {"address": "127.0.0.1:99999"},
        {"topics": topics("")},
        {"topics": topics("x" * 301)},
    ],
    ids=str,
)
async def test_illegal_values_are_refused_before_anything_is_written(
    store_url: str, namespace_name: str, changes: dict[str, object]
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        with pytest.raises(InvalidInputError):
            await register(worker.registry, replace(registration(), **changes))  # type: ignore[arg-type]
        assert worker.replica.version == 0


async def test_an_unregistration_takes_effect_before_its_answer(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await register(worker.registry, registration())
        await worker.registry.unregister("east", "broker-a", 0, CALLER)
        with pytest.raises(NotFoundError):
            worker.registry.find_route("orders")
        with pytest.raises(NotFoundError):
            await worker.registry.unregister("east", "broker-a", 0, CALLER)
        with pytest.raises(NotFoundError):
            await worker.registry.heartbeat("east", "broker-a", 0, CALLER)


class Broker:
    """Sends the same bytes each time, and notes whether they were parsed."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.seat = Seat(registration.cluster, registration.broker, registration.broker_id)
        self.was_read = False

    async def read_body(self) -> Registration:
        self.was_read = True
        return self.registration

    async def register(self, worker: InProcessWorker, sent: bytes = b"the same bytes") -> bool:
        """Whether the body was parsed."""
        self.was_read = False
        await worker.registry.register(self.seat, (sent,), self.read_body, CALLER)
        return self.was_read


async def test_a_body_is_parsed_only_when_its_digest_is_not_the_stored_one(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        broker = Broker(registration())
        assert await broker.register(worker)
        assert not await broker.register(worker)
        assert await broker.register(worker, b"other bytes")
        assert not await broker.register(worker)


async def test_a_change_of_the_group_or_of_a_setting_makes_the_next_body_be_parsed(
    store_url: str, namespace_name: str
) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        broker = Broker(registration())
        await broker.register(worker)
        await worker.registry.delete_topic("orders", None, CALLER)
        assert await broker.register(worker)
        assert not await broker.register(worker)
        await worker.registry.change_setting("broker_timeout_ms", "90000", CALLER)
        assert await broker.register(worker)


async def test_the_same_bytes_for_another_seat_are_parsed(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        await Broker(registration()).register(worker)
        assert await Broker(registration(cluster="west", broker="broker-b")).register(worker)


async def test_a_registration_with_mappings_hosted_elsewhere_is_always_parsed(
    store_url: str, namespace_name: str
) -> None:
    """Without a data version they are written each time, and the host's group is not the one that was digested."""
    async with running_worker(store_url, namespace_name) as worker:
        broker = Broker(registration(data_version=None, mappings={"orders": mapping(bname="broker-b")}))
        for _ in range(3):
            assert await broker.register(worker)


async def test_a_registration_without_sent_bytes_is_not_remembered(store_url: str, namespace_name: str) -> None:
    async with running_worker(store_url, namespace_name) as worker:
        broker = Broker(registration())
        for _ in range(2):
            broker.was_read = False
            await worker.registry.register(broker.seat, (), broker.read_body, CALLER)
            assert broker.was_read
