"""Dry runs: what an administrative verb would change, from this worker's table, without changing it.

A dry run raises the same errors as the verb where the table shows that the verb would fail. It is a forecast: between
it and the verb, the table may change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from routebook.errors import NotFoundError
from routebook.model.broker import PERM_READ_WRITE, QueueData
from routebook.model.names import check_name
from routebook.registry.administration import check_key_value
from routebook.registry.registry import Registry
from routebook.settings import catalogue
from routebook.store.history import Reader

MAX_LISTED: Final = 200
"""A group can have 70,000 topics: the answer has their number and the first ones."""
_NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class DryRun:
    count: int
    """Number of objects that would change; `changes` has the first ones."""
    changes: tuple[PlannedChange, ...]
    version: int
    """The version of the table that was examined."""


def _plan(registry: Registry, count: int, changes: Iterable[PlannedChange]) -> DryRun:
    return DryRun(count, tuple(islice(changes, MAX_LISTED)), registry.replica.version)


def _first(queues: Mapping[str, QueueData]) -> list[tuple[str, QueueData]]:
    return sorted(queues.items())[:MAX_LISTED]


def _queues(queue: QueueData) -> str:
    return f"perm {queue.perm}, {queue.read_queues} read, {queue.write_queues} write"


def plan_broker_removal(registry: Registry, cluster: str, broker: str, broker_id: int) -> DryRun:
    group = registry.view.groups.get(broker)
    address = group.addresses.get(broker_id) if group and group.cluster == cluster else None
    if group is None or address is None:
        raise NotFoundError(
            "broker", f"{cluster}/{broker}/{broker_id}", advice="It is not registered, so nothing would change."
        )
    changes = [PlannedChange(f"broker {cluster}/{broker}/{broker_id}", address, _NONE)]
    if len(group.addresses) == 1:
        queues = registry.view.queues_of(broker)
        changes.append(PlannedChange(f"group {broker}", f"1 broker, {len(queues)} topics", "removed"))
        changes += [
            PlannedChange(f"topic {topic} on {broker}", _queues(queue), _NONE) for topic, queue in _first(queues)
        ]
        return _plan(registry, 2 + len(queues), changes)
    return _plan(registry, 1, changes)


def plan_topic_deletion(registry: Registry, topic: str, cluster: str | None) -> DryRun:
    check_name("topic", topic)
    listed = None if cluster is None else registry.view.clusters.get(cluster, set())
    queues = {
        broker: queue for broker, queue in registry.view.brokers_of(topic).items() if listed is None or broker in listed
    }
    changes = (PlannedChange(f"topic {topic} on {broker}", _queues(queue), _NONE) for broker, queue in _first(queues))
    return _plan(registry, len(queues), changes)


def plan_write_permission(registry: Registry, broker: str, writable: bool) -> DryRun:
    check_name("broker", broker)

    def after(queue: QueueData) -> int:
        return PERM_READ_WRITE if writable else queue.without_write().perm

    queues = registry.view.queues_of(broker)
    changed = {topic: queue for topic, queue in queues.items() if queue.perm != after(queue)}
    changes = (
        PlannedChange(f"topic {topic} on {broker}", f"perm {queue.perm}", f"perm {after(queue)}")
        for topic, queue in _first(changed)
    )
    return _plan(registry, len(changed), changes)


def plan_key_value(registry: Registry, kv_namespace: str, key: str, value: str | None) -> DryRun:
    """`value` None: its deletion. Values may be secrets, so only their sizes are shown."""
    if value is not None:
        check_key_value(kv_namespace, key, value, registry.live.current.max_key_value_bytes)
    before = registry.view.kv.get(kv_namespace, {}).get(key)
    if value is None and before is None:
        raise NotFoundError("key", f"{kv_namespace}/{key}", advice="Nothing would change.")
    changes = [] if before == value else [PlannedChange(f"key {kv_namespace}/{key}", _size(before), _size(value))]
    return _plan(registry, len(changes), changes)


def _size(value: str | None) -> str:
    return _NONE if value is None else f"value of {len(value.encode('utf-8', 'surrogatepass'))} bytes"


def plan_setting(registry: Registry, key: str, value: str | None) -> DryRun:
    """`value` None: its reset to the value of the file or the default."""
    before = registry.view.settings.get(key)
    if value is None and before is None:
        catalogue.find(key)
        raise NotFoundError(
            "run-time setting", key, advice="It was not changed at run time, so there is nothing to reset."
        )
    text = registry.live.check(key, value) if value is not None else registry.live.text_without_run_time(key)
    now = next((row[1] for row in registry.live.describe(masked=False) if row[0] == key), before or "")
    after = registry.live.masked(key, text) + ("" if value is not None else " (file or default)")
    origin = registry.live.origin(key) if key in catalogue.all_settings() else "run time"
    changes = [PlannedChange(f"setting {key}", f"{registry.live.masked(key, now)} ({origin})", after)]
    return _plan(registry, 0 if value is not None and before == text else 1, changes if before != text else [])


async def plan_expiry_release(registry: Registry) -> DryRun:
    state = await registry.expiry_state()
    changes = (PlannedChange(f"broker {name}", "removal held", "removed by the next scan") for name in state.brokers)
    return _plan(registry, len(state.brokers), changes)


def plan_identity_revocation(registry: Registry, name: str) -> DryRun:
    found = next((one for one in registry.identities.all() if one.identity.name == name), None)
    if found is None:
        raise NotFoundError("identity", name, advice="`routebook token list` shows all of them.")
    return _plan(registry, 1, [PlannedChange(f"identity {name}", f"role {found.identity.role.label}", "revoked")])


async def plan_reader_removal(registry: Registry, name: str) -> DryRun:
    reader = next((one for one in await registry.readers() if one.name == name), None)
    if reader is None:
        raise NotFoundError("reader", name, advice="`GET /v1/readers` lists all known ones.")
    return _plan(registry, 1, [PlannedChange(f"reader {name}", _position(reader), "forgotten")])


def _position(reader: Reader) -> str:
    return f"consumed up to version {reader.version}"
