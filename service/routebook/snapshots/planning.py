"""Works out what an import would change in the table, before anything is written.

Nothing in the table is removed. Where the table and the snapshot differ, the table's value stays, or with
`replace_known` the snapshot's value is written. A field that the snapshot does not contain (other name servers do not
report timeouts) is not a difference.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from routebook.compare.differences import Fields, Scalar, compare_fields, mapping_fields, queue_fields, value_field
from routebook.model.broker import BrokerGroup, QueueData, TopicMapping
from routebook.model.names import join_instance_name
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot
from routebook.registry.registration import may_publish
from routebook.replica.table import Table

Action = Literal["create", "replace", "keep", "same"]
"""keep: the table has a different value, which stays."""
ACTIONS: Final[tuple[Action, ...]] = ("create", "replace", "keep", "same")
KINDS: Final = ("setting", "key-value", "group", "broker", "topic", "mapping")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Step:
    """One object. `fields` has those that differ: the value in the table, and the value in the snapshot."""

    kind: str
    name: str
    action: Action
    fields: Mapping[str, tuple[Scalar, Scalar]] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return self.action in ("create", "replace")


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What an import writes for one group."""

    name: str
    zone: str | None
    acting_master: bool
    instances: tuple[InstanceSnapshot, ...]
    """The instances to register, in this order."""
    publishes: bool
    """Whether the rules allow the first instance to publish topics and mappings. Otherwise topics are registered one by
    one."""
    queues: Mapping[str, QueueData]
    mappings: Mapping[str, TopicMapping]
    overwrites: bool
    """The table has some of the topics or mappings, with the first instance's data version, so a registration with that
    version would not change them."""


@dataclass(frozen=True, slots=True)
class Plan:
    settings: Mapping[str, str]
    key_values: tuple[tuple[str, str, str], ...]
    groups: tuple[GroupPlan, ...]
    steps: tuple[Step, ...]
    """All objects that are not the same, except topics of new groups."""
    counts: Mapping[str, Mapping[Action, int]]
    """Number of all objects, by kind and action."""
    left_out: tuple[str, ...]


def make_plan(snapshot: Snapshot, table: Table, *, replace_known: bool) -> Plan:
    return _Planner(table, replace_known).plan(snapshot)


class _Planner:
    def __init__(self, table: Table, replace_known: bool) -> None:
        self._table = table
        self._replace_known = replace_known
        self._steps: list[Step] = []
        self._counts: dict[str, Counter[Action]] = {kind: Counter() for kind in KINDS}
        self._left_out: list[str] = []

    def plan(self, snapshot: Snapshot) -> Plan:
        known = self._table.settings
        settings = {
            key: value
            for key, value in snapshot.settings.items()
            if self._step("setting", key, _value(known.get(key)), value_field(value)).writes
        }
        key_values = tuple(self._key_values(snapshot))
        groups = tuple(planned for group in snapshot.groups if (planned := self._group(group)))
        counts = {kind: {action: counted[action] for action in ACTIONS} for kind, counted in self._counts.items()}
        return Plan(settings, key_values, groups, tuple(self._steps), counts, tuple(self._left_out))

    def _key_values(self, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
        for namespace, values in snapshot.key_values.items():
            known = self._table.kv.get(namespace, {})
            for key, value in values.items():
                now = _value(known.get(key))
                if self._step("key-value", f"{namespace}/{key}", now, value_field(value)).writes:
                    yield namespace, key, value

    def _group(self, group: GroupSnapshot) -> GroupPlan | None:
        known = self._table.groups.get(group.name)
        if not group.instances and known is None:
            self._left_out.append(f"group {group.name}: a group without members cannot be registered")
            return None
        if known and known.cluster != group.cluster:
            self._left_out.append(
                f"group {group.name}: its cluster is {known.cluster} in the route table,"
                f" {group.cluster} in the snapshot"
            )
            return None
        flags = self._step("group", group.name, _flags(known) if known else None, _flags(group))
        instances = [found for each in group.instances if (found := self._instance(group, known, each))]
        if flags.action == "replace" and not instances and group.instances:
            # Flags are part of a registration; that of any instance sets them.
            instances = [self._completed(group.name, group.instances[0])]
        queues = self._queues(group, known)
        mappings = self._mappings(group)
        if not (instances or queues or mappings):
            return None
        kept = known if known and flags.action == "keep" else group
        return self._group_plan(kept, known, instances, queues, mappings)

    def _group_plan(
        self,
        flags: BrokerGroup | GroupSnapshot,
        known: BrokerGroup | None,
        instances: list[InstanceSnapshot],
        queues: dict[str, QueueData],
        mappings: dict[str, TopicMapping],
    ) -> GroupPlan:
        name = flags.name
        instances.sort(key=lambda each: (each.cluster != flags.cluster, each.broker_id))
        publishes = bool(instances) and may_publish(
            known, instances[0].broker_id, instances[0].address, acting_master=flags.acting_master
        )
        if mappings and not publishes:
            self._left_out.append(f"group {name}: {len(mappings)} static mappings, which only its master may register")
            mappings = {}
        known_queues = self._table.queues_of(name)
        overwrites = (
            publishes
            and self._has_version_of(instances[0])
            and (bool(mappings) or not known_queues.keys().isdisjoint(queues))
        )
        return GroupPlan(
            name, flags.zone, flags.acting_master, tuple(instances), publishes, queues, mappings, overwrites
        )

    def _instance(
        self, group: GroupSnapshot, known: BrokerGroup | None, instance: InstanceSnapshot
    ) -> InstanceSnapshot | None:
        """Returns None when the instance stays unchanged."""
        then = _reported_fields(instance)
        address = known.addresses.get(instance.broker_id) if known else None
        now: Fields | None = None
        if address is not None:
            now = {
                key: value
                for key, value in _reported_fields(self._known(group.name, instance, address)).items()
                if key in then
            }
        elif known and instance.address in known.addresses.values():
            now = {"address": None}  # It holds another seat of the group, which it would leave.
        name = f"{instance.cluster}/{group.name}/{instance.broker_id}"
        step = self._step("broker", name, now, then)
        return self._completed(group.name, instance) if step.writes else None

    def _known(self, broker: str, instance: InstanceSnapshot, address: str) -> InstanceSnapshot:
        """The instance that the table has in this seat."""
        cluster = instance.cluster
        known = self._table.instances.get(join_instance_name(cluster, address))
        if known is None or known.broker != broker:
            return InstanceSnapshot(instance.broker_id, address, cluster)
        return InstanceSnapshot(
            instance.broker_id,
            address,
            cluster,
            known.ha_address,
            known.timeout_ms,
            known.data_version,
            known.filters,
        )

    def _completed(self, broker: str, instance: InstanceSnapshot) -> InstanceSnapshot:
        """The instance, with the table's values for fields that the snapshot does not contain."""
        known = self._known(broker, instance, instance.address)
        return replace(
            instance,
            ha_address=instance.ha_address or known.ha_address,
            timeout_ms=instance.timeout_ms or known.timeout_ms,
            data_version=instance.data_version or known.data_version,
        )

    def _has_version_of(self, instance: InstanceSnapshot) -> bool:
        known = self._table.instances.get(join_instance_name(instance.cluster, instance.address))
        return known is not None and known.data_version == instance.data_version

    def _queues(self, group: GroupSnapshot, known: BrokerGroup | None) -> dict[str, QueueData]:
        if known is None:
            self._counts["topic"]["create"] += len(group.queues)
            return dict(group.queues)
        return self._objects("topic", group.name, self._table.queues_of(group.name), group.queues, queue_fields)

    def _mappings(self, group: GroupSnapshot) -> dict[str, TopicMapping]:
        known = self._table.mappings_of_broker(group.name)
        return self._objects("mapping", group.name, known, group.mappings, mapping_fields)

    def _objects(
        self,
        kind: str,
        broker: str,
        known: Mapping[str, Value],
        values: Mapping[str, Value],
        fields: Callable[[Value], Fields],
    ) -> dict[str, Value]:
        """The values to write, by topic."""
        found = {}
        for topic, value in values.items():
            known_value = known.get(topic)
            now = None if known_value is None else fields(known_value)
            if self._step(kind, f"{topic} @ {broker}", now, fields(value)).writes:
                found[topic] = value
        return found

    def _step(self, kind: str, name: str, now: Fields | None, then: Fields) -> Step:
        if now is None:
            step = Step(kind, name, "create", {key: (None, value) for key, value in then.items() if value is not None})
        else:
            found = compare_fields(kind, name, now, then)
            differing = {each.field: (each.here, each.there) for each in found if each.field is not None}
            action: Action = "same" if not differing else "replace" if self._replace_known else "keep"
            step = Step(kind, name, action, differing)
        self._counts[kind][step.action] += 1
        if step.action != "same":
            self._steps.append(step)
        return step


def _flags(group: BrokerGroup | GroupSnapshot) -> Fields:
    return {"zone": group.zone, "acting master": group.acting_master}


def _reported_fields(instance: InstanceSnapshot) -> Fields:
    version = instance.data_version
    fields: Fields = {
        "address": instance.address,
        "ha address": instance.ha_address or None,
        "timeout ms": instance.timeout_ms,
        "data version": None if version is None else version.pack(),
        "filters": instance.filters,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _value(value: str | None) -> Fields | None:
    return None if value is None else value_field(value)
