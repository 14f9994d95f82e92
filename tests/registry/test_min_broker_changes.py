"""905: who is told that a group's smallest id is another one, and that it is said once, whoever made the change."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from routebook.model.broker import MinBrokerChange
from tests.reference.build import A, B, C, registration
from tests.registry.fleets import Fleet, fleet
from tests.support.in_process import CALLER
from tests.support.registering import register
from tests.support.scripts import make_due
from tests.support.waiting import until

HA = "127.0.0.9:10912"


@asynccontextmanager
async def telling(
    store_url: str, namespace: str, **settings: Any
) -> AsyncIterator[tuple[Fleet, list[MinBrokerChange]]]:
    """Three workers, and all that any of them would tell brokers."""
    told: list[MinBrokerChange] = []
    async with fleet(store_url, namespace, **({"notify_min_broker_id_changed": True} | settings)) as brokers:
        for worker in brokers.workers:
            worker.registry.min_broker_changes.listener = told.append
        yield brokers, told


async def join(brokers: Fleet, address: str, broker_id: int, *, worker: int = 0, **changes: Any) -> None:
    said = registration(address, broker_id, **({"acting_master": True, "ha_address": HA} | changes))
    await register(brokers.workers[worker].registry, said)
    await until(lambda: brokers.all_know("broker-a"))


async def leave(brokers: Fleet, address: str, broker_id: int, *, worker: int = 0) -> None:
    left = brokers.workers[worker].registry.queue_unregistration("east", "broker-a", broker_id, address, CALLER)
    assert left is not None
    await left


def joined(broker_id: int, address: str, *receivers: str) -> MinBrokerChange:
    return MinBrokerChange("broker-a", broker_id, address, receivers, ha_address=HA)


def left(broker_id: int, address: str, offline: str, *receivers: str) -> MinBrokerChange:
    return MinBrokerChange("broker-a", broker_id, address, receivers, offline_address=offline)


async def test_a_registration_that_lowers_the_smallest_id_is_told_to_the_others(
    store_url: str, namespace_name: str
) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        assert told == []
        await join(brokers, A, 0, worker=1)
        assert told == [joined(0, A, B, C)]


async def test_the_registration_once_more_is_no_news(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, B, 1)
        for worker in (0, 1, 2, 0):
            await join(brokers, A, 0, worker=worker)
        assert len(told) == 1


async def test_workers_that_hear_the_same_at_once_say_it_once(store_url: str, namespace_name: str) -> None:
    """A broker registers with every name server of its list."""
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, B, 1)
        await asyncio.gather(*(join(brokers, A, 0, worker=n) for n in range(3)))
        assert told == [joined(0, A, B)]
        await asyncio.gather(*(leave(brokers, A, 0, worker=n) for n in range(3)))
        assert told[1:] == [left(1, B, A, B)]


async def test_a_sole_member_that_lowers_its_own_id_tells_itself(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 1, acting_master=False)
        await join(brokers, A, 0, acting_master=False)
        assert told == [joined(0, A, A)]


async def test_larger_ids_and_first_members_are_no_news(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, B, 1)
        assert told == []


async def test_a_group_that_loses_its_smallest_id_is_told_all_of_it(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        await leave(brokers, A, 0)
        assert told == [left(1, B, A, B, C)]


async def test_several_departures_of_a_batch_are_told_once_with_the_last_address(
    store_url: str, namespace_name: str
) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        await asyncio.gather(leave(brokers, A, 0), leave(brokers, B, 1))
        assert told == [left(2, C, B, C)]


async def test_only_groups_that_act_without_a_master_are_told_of_a_departure(
    store_url: str, namespace_name: str
) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0, acting_master=False)
        await join(brokers, B, 1, acting_master=False)
        await leave(brokers, A, 0)
        assert told == []


async def test_a_departure_under_a_wrong_id_is_not_told(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, A, 7)
        assert brokers.workers[0].replica.table.groups["broker-a"].addresses == {1: B}
        assert told == []


async def test_a_departure_that_removes_nobody_is_not_told(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, C, 0)
        assert told == []


async def test_an_expiry_is_told_by_the_leader(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await make_due(brokers.workers[0].namespace, registration(A).instance_name)
        await until(lambda: told == [left(1, B, A, B)])


async def test_an_unregistration_over_http_is_told_too(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name) as (brokers, told):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await brokers.workers[2].registry.unregister("east", "broker-a", 0, CALLER)
        assert told == [left(1, B, A, B)]


async def test_nobody_is_told_unless_the_setting_says_so(store_url: str, namespace_name: str) -> None:
    async with telling(store_url, namespace_name, notify_min_broker_id_changed=False) as (brokers, told):
        await join(brokers, B, 1)
        await join(brokers, A, 0)
        assert told == []


async def test_the_switch_is_read_each_time(store_url: str, namespace_name: str) -> None:
    told: list[MinBrokerChange] = []
    async with fleet(store_url, namespace_name) as brokers:
        first, *_ = brokers.workers
        first.registry.min_broker_changes.listener = told.append
        await join(brokers, B, 1)
        await first.registry.change_setting("notify_min_broker_id_changed", "true", CALLER)
        await join(brokers, A, 0)
        assert told == [joined(0, A, B)]
