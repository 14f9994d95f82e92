"""Entries of the history: their size, what can be reconstructed from them, one entry per outage."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from routebook.model.broker import QueueData
from routebook.store.administration import set_write_permission
from routebook.store.namespace import Namespace
from routebook.store.reads import read_groups
from routebook.store.registration import heartbeat_broker
from routebook.store.removal import hold_expiry, scan_deadlines
from routebook.store.workers import acquire_lease, renew_worker_lease
from tests.properties.plain_worker import PlainWorker
from tests.properties.replay import read_history
from tests.reference.build import A, mapping, registration, topics, version
from tests.reference.route_at import queues_at
from tests.support.scripts import CALLER, NO_BRAKE, history, kinds

HOUR_MS = 3_600_000


def long_names(count: int, letter: str = "語") -> list[str]:
    return [f"{n:04d}" + letter * 296 for n in range(count)]


async def parts_of(namespace: Namespace, after: int = 0) -> list[dict[str, Any]]:
    """`read_history` checks the size of each entry."""
    return [payload for _, number, payload in await read_history(namespace) if number > after]


def by_topic(items: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["t"]: item for item in items}


async def test_long_names_make_more_parts_and_none_is_too_large(namespace: Namespace) -> None:
    names = long_names(1000)
    await PlainWorker(namespace).register(registration(topics=topics(*names)))
    parts = await parts_of(namespace)
    assert [part["part"] for part in parts] == list(range(parts[0]["parts"]))
    assert [item["t"] for part in parts for item in part["queues"]] == names


async def test_new_and_differing_topics_do_not_exceed_an_entry_together(namespace: Namespace) -> None:
    worker, old, new = PlainWorker(namespace), long_names(150), long_names(150, "字")
    await worker.register(registration(topics=topics(*old)))
    before = len(await history(namespace))
    await worker.register(registration(data_version=version(1), topics=topics(*new) | topics(*old, perm=4)))
    parts = await parts_of(namespace, before)
    assert len(parts) == 3
    assert {item["t"] for part in parts for item in part["queues"]} == {*old, *new}


async def test_a_registration_has_the_former_values_of_topics_that_it_changes_or_removes(namespace: Namespace) -> None:
    worker = PlainWorker(namespace)
    worker.deletes_topics = True
    await worker.register(registration(topics=topics("kept", "changed", "removed")))
    after = topics("kept", "new") | topics("changed", perm=4)
    await worker.register(registration(data_version=version(1), topics=after))
    first, second = [payload for _, _, payload in await read_history(namespace)]
    assert "queues" not in first["before"]
    former = {item["t"]: item for item in first["queues"]}
    assert second["before"] == {"queues": [former["changed"], former["removed"]]}
    assert {item["t"] for item in second["queues"]} == {"new", "changed", "removed"}


async def test_topics_that_a_registration_may_not_change_have_no_former_values(namespace: Namespace) -> None:
    """With the same data version, known topics keep their values."""
    worker = PlainWorker(namespace)
    await worker.register(registration(data_version=version(1), topics=topics("a", "b")))
    await worker.register(registration(data_version=version(1), topics=topics("a", "b", perm=4) | topics("new")))
    last = (await read_history(namespace))[-1][2]
    assert [item["t"] for item in last["queues"]] == ["new"]
    assert "before" not in last


@pytest.mark.parametrize("names", [[f"t{n}" for n in range(8000)], long_names(500)], ids=["many", "long"])
async def test_each_entry_has_the_former_values_of_its_own_topics(namespace: Namespace, names: list[str]) -> None:
    worker = PlainWorker(namespace)
    await worker.register(registration(data_version=version(1), topics=topics(*names)))
    registered = await parts_of(namespace)
    kept = names[: len(names) // 2]
    await worker.register(
        registration(data_version=version(2), topics=topics(*kept, "new", perm=4), replace_topics=True)
    )
    parts = (await parts_of(namespace))[len(registered) :]
    assert len(parts) > 1
    former = [item for part in parts if "before" in part for item in part["before"]["queues"]]
    assert by_topic(former) == by_topic(item for part in registered for item in part["queues"])
    for part in parts:
        former = part.get("before", {"queues": []})["queues"]
        assert by_topic(former).keys() == by_topic(part["queues"]).keys() - {"new"}


async def test_hosts_of_mappings_are_distributed_over_entries_too(namespace: Namespace) -> None:
    hosts = long_names(500)
    mappings = {f"t{n}": mapping(f"t{n}", host) for n, host in enumerate(hosts)}
    await PlainWorker(namespace).register(registration(mappings=mappings))
    parts = await parts_of(namespace)
    assert len(parts) > 1
    assert sorted(host for part in parts for host in part.get("mapped", ())) == sorted(hosts)


async def test_a_hold_names_as_many_brokers_as_fit_into_an_entry(namespace: Namespace) -> None:
    _, lease = await acquire_lease(namespace, "worker-1", 60_000)
    await hold_expiry(namespace, lease.whole, long_names(1000), caller=CALLER)
    [held] = await parts_of(namespace)
    assert 200 < len(held["brokers"]) < 1000


async def test_a_permission_that_was_given_and_taken_can_be_reconstructed(namespace: Namespace) -> None:
    """From 2 to 6 to 4: the last entry alone does not show it."""
    await PlainWorker(namespace).register(registration(topics=topics("orders", "bills", perm=2)))
    await set_write_permission(namespace, "broker-a", writable=True, caller=CALLER)
    await set_write_permission(namespace, "broker-a", writable=False, caller=CALLER)
    image = (await read_groups(namespace, {"broker-a": None}))["broker-a"]
    assert image.queues["orders"] == QueueData(perm=4)
    assert {key: queue[2] for key, queue in queues_at(await read_history(namespace)).items()} == {
        ("orders", "broker-a"): 4,
        ("bills", "broker-a"): 4,
    }


async def test_an_outage_is_recorded_once_however_many_workers_return(namespace: Namespace) -> None:
    await PlainWorker(namespace).register(registration())
    _, lease = await acquire_lease(namespace, "worker-1", 60_000)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    for outage in (1, 2):
        await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", -HOUR_MS)
        await asyncio.gather(
            *(renew_worker_lease(namespace, f"worker-{n}", 30_000, "{}", caller=CALLER) for n in range(5)),
            *(heartbeat_broker(namespace, "east", "", 0, caller=CALLER, address=A) for _ in range(5)),
            scan_deadlines(namespace, lease.whole, caller=CALLER, limit=10, brake=NO_BRAKE),
        )
        paused = [change.fields for change in await history(namespace) if change.kind == "expiry-paused"]
        assert len(paused) == outage
        assert paused[-1]["to_ms"] - paused[-1]["from_ms"] >= HOUR_MS


async def test_a_clock_that_is_set_back_is_no_outage(namespace: Namespace) -> None:
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    await namespace.client.call("HINCRBY", namespace.keys.meta, "alive_ms", HOUR_MS)
    await renew_worker_lease(namespace, "worker-1", 30_000, "{}", caller=CALLER)
    assert await kinds(namespace) == []
