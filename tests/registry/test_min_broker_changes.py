"""Notifications of a group's smallest broker id (905): which brokers get one, and that each gets it once."""

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
async def observed_fleet(
    store_url: str, namespace: str, **settings: Any
) -> AsyncIterator[tuple[Fleet, list[MinBrokerChange]]]:
    """Three workers, and all notifications that any of them would send."""
    notices: list[MinBrokerChange] = []
    async with fleet(store_url, namespace, **({"notify_min_broker_id_changed": True} | settings)) as brokers:
        for worker in brokers.workers:
            worker.registry.min_broker_changes.listener = notices.append
        yield brokers, notices


async def join(brokers: Fleet, address: str, broker_id: int, *, worker: int = 0, **changes: Any) -> None:
    broker = registration(address, broker_id, **({"acting_master": True, "ha_address": HA} | changes))
    await register(brokers.workers[worker].registry, broker)
    await until(lambda: brokers.all_show("broker-a"))


async def leave(brokers: Fleet, address: str, broker_id: int, *, worker: int = 0) -> None:
    removed = brokers.workers[worker].registry.queue_unregistration("east", "broker-a", broker_id, address, CALLER)
    assert removed is not None
    await removed


def joined(broker_id: int, address: str, *receivers: str) -> MinBrokerChange:
    return MinBrokerChange("broker-a", broker_id, address, receivers, ha_address=HA)


def left(broker_id: int, address: str, offline: str, *receivers: str) -> MinBrokerChange:
    return MinBrokerChange("broker-a", broker_id, address, receivers, offline_address=offline)


async def test_the_others_are_notified_when_a_registration_lowers_the_smallest_id(
    store_url: str, namespace_name: str
) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        assert notices == []
        await join(brokers, A, 0, worker=1)
        assert notices == [joined(0, A, B, C)]


async def test_a_repeated_registration_notifies_nobody_again(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, B, 1)
        for worker in (0, 1, 2, 0):
            await join(brokers, A, 0, worker=worker)
        assert len(notices) == 1


async def test_a_change_seen_by_several_workers_is_notified_once(store_url: str, namespace_name: str) -> None:
    """A broker registers with every name server in its list."""
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, B, 1)
        await asyncio.gather(*(join(brokers, A, 0, worker=n) for n in range(3)))
        assert notices == [joined(0, A, B)]
        await asyncio.gather(*(leave(brokers, A, 0, worker=n) for n in range(3)))
        assert notices[1:] == [left(1, B, A, B)]


async def test_a_single_broker_that_lowers_its_own_id_is_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 1, acting_master=False)
        await join(brokers, A, 0, acting_master=False)
        assert notices == [joined(0, A, A)]


async def test_larger_ids_and_first_registrations_are_not_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, B, 1)
        assert notices == []


async def test_the_whole_group_is_notified_when_it_loses_its_smallest_id(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        await leave(brokers, A, 0)
        assert notices == [left(1, B, A, B, C)]


async def test_several_removals_of_a_batch_are_one_notification_with_the_last_address(
    store_url: str, namespace_name: str
) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await join(brokers, C, 2)
        await asyncio.gather(leave(brokers, A, 0), leave(brokers, B, 1))
        assert notices == [left(2, C, B, C)]


async def test_a_removal_is_notified_only_in_groups_with_acting_masters(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0, acting_master=False)
        await join(brokers, B, 1, acting_master=False)
        await leave(brokers, A, 0)
        assert notices == []


async def test_a_removal_with_a_wrong_id_is_not_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, A, 7)
        assert brokers.workers[0].replica.table.groups["broker-a"].addresses == {1: B}
        assert notices == []


async def test_an_unregistration_that_removes_nothing_is_not_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await leave(brokers, C, 0)
        assert notices == []


async def test_the_leader_notifies_an_expiry(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await make_due(brokers.workers[0].namespace, registration(A).instance_name)
        await until(lambda: notices == [left(1, B, A, B)])


async def test_an_unregistration_over_http_is_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name) as (brokers, notices):
        await join(brokers, A, 0)
        await join(brokers, B, 1)
        await brokers.workers[2].registry.unregister("east", "broker-a", 0, CALLER)
        assert notices == [left(1, B, A, B)]


async def test_without_the_setting_nothing_is_notified(store_url: str, namespace_name: str) -> None:
    async with observed_fleet(store_url, namespace_name, notify_min_broker_id_changed=False) as (brokers, notices):
        await join(brokers, B, 1)
        await join(brokers, A, 0)
        assert notices == []


async def test_the_setting_takes_effect_at_run_time(store_url: str, namespace_name: str) -> None:
    notices: list[MinBrokerChange] = []
    async with fleet(store_url, namespace_name) as brokers:
        first, *_ = brokers.workers
        first.registry.min_broker_changes.listener = notices.append
        await join(brokers, B, 1)
        await first.registry.change_setting("notify_min_broker_id_changed", "true", CALLER)
        await join(brokers, A, 0)
        assert notices == [joined(0, A, B)]
