"""Brings a snapshot into the route table, through the verbs that brokers and operators use.

All of it is checked before anything is written. What a rule turns down is told, not forced. Whatever interrupts an
import: the same again takes up where it was, since what is there already is not written anew.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from routebook.compare.collecting import run_concurrently
from routebook.errors import InvalidInputError
from routebook.model.broker import Registration, RegistrationResult, Seat
from routebook.model.names import Caller, check_name
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot, Taken
from routebook.model.topic import QueueData
from routebook.registry.registration import check_registration
from routebook.registry.registry import Registry, check_key_value
from routebook.snapshots.document import take_snapshot
from routebook.snapshots.planning import GroupPlan, Plan, make_plan

MAX_CONCURRENT: Final = 8
"""Registrations under way. An import shall take the store's time, not all of it."""
MAX_CONCURRENT_VALUES: Final = 64
"""Key-values under way: the replica reads their whole namespace again for each batch of changes that it sees."""


@dataclass(frozen=True, slots=True)
class Imported:
    plan: Plan
    turned_down: tuple[str, ...]
    """Members that the rules did not let in: another one sits there with a higher state version."""
    version: int


class Snapshots:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def take(self) -> Snapshot:
        registry = self._registry
        taken = Taken("routebook", registry.namespace, registry.history, registry.version, registry.replica.position.ms)
        return take_snapshot(registry.view, taken, masked=registry.live.masked)

    async def bring(self, snapshot: Snapshot, caller: Caller, *, replace_known: bool, dry_run: bool) -> Imported:
        self._check(snapshot)
        plan = make_plan(snapshot, self._registry.view, replace_known=replace_known)
        if dry_run:
            return Imported(plan, (), self._registry.version)
        turned_down = await self._write(plan, caller)
        return Imported(plan, tuple(turned_down), self._registry.version)

    # -- checking

    def _check(self, snapshot: Snapshot) -> None:
        for key, value in snapshot.settings.items():
            live = self._registry.live
            if live.masked(key, value) != value:
                raise InvalidInputError("setting", key, "settings that are no secrets; those are set by hand")
            live.check(key, value)
        for kv_namespace, values in snapshot.key_values.items():
            for key, value in values.items():
                check_key_value(kv_namespace, key, value)
        seen: set[str] = set()
        for group in snapshot.groups:
            if group.name in seen:
                raise InvalidInputError("group", group.name, "each name once")
            seen.add(group.name)
            _check_group(group)

    # -- writing

    async def _write(self, plan: Plan, caller: Caller) -> list[str]:
        registry = self._registry
        turned_down: list[str] = []

        async def put(item: tuple[str, str, str]) -> None:
            await registry.put_kv(*item, caller)

        async def register(group: GroupPlan) -> None:
            turned_down.extend(await self._register(group, caller))

        async def put_topic(item: tuple[str, dict[str, QueueData]]) -> None:
            await registry.register_topic(*item, caller)

        for key, value in plan.settings.items():
            await registry.change_setting(key, value, caller)
        await run_concurrently(plan.key_values, put, max_concurrent=MAX_CONCURRENT_VALUES)
        await run_concurrently(plan.groups, register, max_concurrent=MAX_CONCURRENT)
        await run_concurrently(_by_request(plan.groups).items(), put_topic, max_concurrent=MAX_CONCURRENT)
        return turned_down

    async def _register(self, group: GroupPlan, caller: Caller) -> list[str]:
        """Names of those turned down. The publisher comes first, with all topics."""
        turned_down = []
        for place, member in enumerate(group.members):
            registration = _registration(group, member, publishes=group.publishes and place == 0)
            if group.overwrites and place == 0:
                # No data version counts as another one, so what is there is written anew.
                await self._register_in_full(replace(registration, data_version=None), caller)
            result = await self._register_in_full(registration, caller)
            if result.status == "turned-down":
                turned_down.append(f"{member.cluster}/{group.name}/{member.broker_id}")
        return turned_down

    async def _register_in_full(self, registration: Registration, caller: Caller) -> RegistrationResult:
        """No bytes were sent that the broker itself could repeat, so the registration is not remembered."""

        async def read_body() -> Registration:
            return registration

        seat = Seat(registration.cluster, registration.broker, registration.broker_id)
        return await self._registry.register(seat, (), read_body, caller)


def _check_group(group: GroupSnapshot) -> None:
    check_name("group", group.name)
    check_name("cluster", group.cluster)
    seats: set[tuple[str, int]] = set()
    for member in group.members:
        seat = (member.cluster, member.broker_id)
        if seat in seats:
            raise InvalidInputError("member", f"{group.name}/{member.broker_id}", "each id of a cluster once")
        seats.add(seat)
        check_registration(_registration_of(group, member))
    for topic in group.queues:
        check_name("topic", topic)
    for topic, mapping in group.mappings.items():
        check_name("topic", topic)
        check_name("host broker of a mapping", mapping.bname)


def _registration_of(group: GroupSnapshot | GroupPlan, member: InstanceSnapshot) -> Registration:
    return Registration(
        cluster=member.cluster,
        broker=group.name,
        broker_id=member.broker_id,
        address=member.address,
        ha_address=member.ha_address,
        zone=group.zone,
        timeout_ms=member.timeout_ms,
        acting_master=group.acting_master,
        data_version=member.data_version,
        filters=member.filters,
        full=True,
    )


def _registration(group: GroupPlan, member: InstanceSnapshot, *, publishes: bool) -> Registration:
    said = _registration_of(group, member)
    if not publishes:
        return said
    topics = {topic: queue for topic, queue in group.queues.items() if not queue.by_request}
    return replace(said, topics=topics, mappings=group.mappings)


def _by_request(groups: Iterable[GroupPlan]) -> dict[str, dict[str, QueueData]]:
    """By topic: what no broker brings, or none of those that register now."""
    found: dict[str, dict[str, QueueData]] = defaultdict(dict)
    for group in groups:
        for topic, queue in group.queues.items():
            if queue.by_request or not group.publishes:
                found[topic][group.name] = queue
    return found
