"""Imports a snapshot into the route table, with the verbs that brokers and operators use.

The whole snapshot is checked before anything is written. What a rule does not allow is reported, not forced. After an
interruption, import the same snapshot again: what is there already is not written again.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from routebook.compare.collecting import run_concurrently
from routebook.errors import InvalidInputError
from routebook.model.broker import QueueData, Registration, RegistrationResult, Seat
from routebook.model.names import Caller, check_name
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot
from routebook.registry.administration import check_key_value
from routebook.registry.registration import check_registration
from routebook.registry.registry import Registry
from routebook.snapshots.planning import GroupPlan, Plan, make_plan

MAX_CONCURRENT: Final = 8
"""Concurrent registrations. They leave most of the store's time to other requests."""
MAX_CONCURRENT_VALUES: Final = 64
"""Concurrent key-values. More at a time is better, as the replica reads their whole namespace once per batch."""


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    plan: Plan
    turned_down: tuple[str, ...]
    """Instances that could not register, because another one holds the seat with a higher state version."""
    version: int


async def import_snapshot(
    registry: Registry, snapshot: Snapshot, caller: Caller, *, replace_known: bool, dry_run: bool
) -> ImportOutcome:
    _check(registry, snapshot)
    plan = make_plan(snapshot, registry.view, replace_known=replace_known)
    turned_down = [] if dry_run else await _write(registry, plan, caller)
    return ImportOutcome(plan, tuple(turned_down), registry.replica.version)


# -- checks


def _check(registry: Registry, snapshot: Snapshot) -> None:
    live = registry.live
    for key, value in snapshot.settings.items():
        if live.masked(key, value) != value:
            raise InvalidInputError("setting", key, "settings that are not secret; set a secret by hand")
        live.check(key, value)
    for namespace, values in snapshot.key_values.items():
        for key, value in values.items():
            check_key_value(namespace, key, value, live.current.max_key_value_bytes)
    names: set[str] = set()
    for group in snapshot.groups:
        if group.name in names:
            raise InvalidInputError("group", group.name, "each group once")
        names.add(group.name)
        _check_group(registry, group)


def _check_group(registry: Registry, group: GroupSnapshot) -> None:
    check_name("group", group.name)
    check_name("cluster", group.cluster)
    seats: set[tuple[str, int]] = set()
    for instance in group.instances:
        seat = (instance.cluster, instance.broker_id)
        if seat in seats:
            raise InvalidInputError("member", f"{group.name}/{instance.broker_id}", "each id of a cluster once")
        seats.add(seat)
        check_registration(_registration_without_topics(group, instance), registry.live.current)
    for topic in group.queues:
        check_name("topic", topic)
    for topic, mapping in group.mappings.items():
        check_name("topic", topic)
        check_name("host broker of a mapping", mapping.bname)


# -- writes


async def _write(registry: Registry, plan: Plan, caller: Caller) -> list[str]:
    turned_down: list[str] = []

    async def put(item: tuple[str, str, str]) -> None:
        await registry.put_kv(*item, caller)

    async def register(group: GroupPlan) -> None:
        turned_down.extend(await _register_group(registry, group, caller))

    async def put_topic(item: tuple[str, dict[str, QueueData]]) -> None:
        await registry.register_topic(*item, caller)

    for key, value in plan.settings.items():
        await registry.change_setting(key, value, caller)
    await run_concurrently(plan.key_values, put, max_concurrent=MAX_CONCURRENT_VALUES)
    await run_concurrently(plan.groups, register, max_concurrent=MAX_CONCURRENT)
    await run_concurrently(_topics_by_request(plan.groups).items(), put_topic, max_concurrent=MAX_CONCURRENT)
    return turned_down


async def _register_group(registry: Registry, group: GroupPlan, caller: Caller) -> list[str]:
    """Returns the names of instances that were turned down. The first instance publishes all topics."""
    turned_down = []
    for number, instance in enumerate(group.instances):
        registration = _registration(group, instance, publishes=group.publishes and number == 0)
        if group.overwrites and number == 0:
            # A registration without a data version always counts as changed, so existing topics are overwritten.
            await _register(registry, replace(registration, data_version=None), caller)
        result = await _register(registry, registration, caller)
        if result.status == "turned-down":
            turned_down.append(f"{instance.cluster}/{group.name}/{instance.broker_id}")
    return turned_down


async def _register(registry: Registry, registration: Registration, caller: Caller) -> RegistrationResult:
    """Without a digest: there are no request bytes that the broker could repeat."""

    async def read_body() -> Registration:
        return registration

    seat = Seat(registration.cluster, registration.broker, registration.broker_id)
    return await registry.register(seat, (), read_body, caller)


def _registration(group: GroupPlan, instance: InstanceSnapshot, *, publishes: bool) -> Registration:
    registration = _registration_without_topics(group, instance)
    if not publishes:
        return registration
    topics = {topic: queue for topic, queue in group.queues.items() if not queue.by_request}
    return replace(registration, topics=topics, mappings=group.mappings)


def _registration_without_topics(group: GroupSnapshot | GroupPlan, instance: InstanceSnapshot) -> Registration:
    return Registration(
        cluster=instance.cluster,
        broker=group.name,
        broker_id=instance.broker_id,
        address=instance.address,
        ha_address=instance.ha_address,
        zone=group.zone,
        timeout_ms=instance.timeout_ms,
        acting_master=group.acting_master,
        data_version=instance.data_version,
        filters=instance.filters,
        full=True,
    )


def _topics_by_request(groups: Iterable[GroupPlan]) -> dict[str, dict[str, QueueData]]:
    """Queue entries that no registration of this import contains, by topic and group."""
    found: dict[str, dict[str, QueueData]] = defaultdict(dict)
    for group in groups:
        for topic, queue in group.queues.items():
            if queue.by_request or not group.publishes:
                found[topic][group.name] = queue
    return found
