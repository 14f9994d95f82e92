"""What an import would change, worked out against the table, before anything is written.

Nothing of what is there goes, whatever the snapshot lacks. Where both say something, and something different, the
table wins; with `replace_known`, the snapshot. What a snapshot does not tell (another name server knows no timeouts) is
no difference.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from routebook.compare.differences import Fields, Scalar, compare_fields, mapping_fields, queue_fields, value_field
from routebook.model.broker import BrokerGroup
from routebook.model.names import join_instance_name
from routebook.model.snapshot import GroupSnapshot, InstanceSnapshot, Snapshot
from routebook.model.topic import QueueData, TopicMapping
from routebook.registry.registration import may_publish
from routebook.replica.table import Table

Action = Literal["create", "replace", "keep", "same"]
"""keep: the table says something else, and stays as it is."""
ACTIONS: Final[tuple[Action, ...]] = ("create", "replace", "keep", "same")
KINDS: Final = ("setting", "key-value", "group", "broker", "topic", "mapping")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing. `fields`: those that differ, as they are in the table and in the snapshot."""

    kind: str
    name: str
    action: Action
    fields: Mapping[str, tuple[Scalar, Scalar]] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return self.action in ("create", "replace")


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What is to be written of one group."""

    name: str
    zone: str | None
    acting_master: bool
    members: tuple[InstanceSnapshot, ...]
    """Those that register, in this order."""
    publishes: bool
    """The first of them may bring topics and mappings under the rules; else topics come by request."""
    queues: Mapping[str, QueueData]
    mappings: Mapping[str, TopicMapping]
    overwrites: bool
    """Some are there, and the first member's data version is: under the rules they would stay as they are."""


@dataclass(frozen=True, slots=True)
class Plan:
    settings: Mapping[str, str]
    key_values: tuple[tuple[str, str, str], ...]
    groups: tuple[GroupPlan, ...]
    steps: tuple[Step, ...]
    """All things but those that are the same, and the topics of groups that are new."""
    counts: Mapping[str, Mapping[Action, int]]
    """By kind, of all things."""
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
        if not group.members and known is None:
            self._left_out.append(f"group {group.name}: without members it cannot be registered")
            return None
        if known and known.cluster != group.cluster:
            self._left_out.append(f"group {group.name}: it is in cluster {known.cluster} here, {group.cluster} there")
            return None
        flags = self._step("group", group.name, _flags(known) if known else None, _flags(group))
        members = [one for member in group.members if (one := self._member(group, known, member))]
        if flags.action == "replace" and not members and group.members:
            members = [self._completed(group.name, group.members[0])]  # Flags come with a registration, whosever it is.
        queues = self._queues(group, known)
        mappings = self._mappings(group)
        if not (members or queues or mappings):
            return None
        kept = known if known and flags.action == "keep" else group
        return self._group_plan(kept, known, members, queues, mappings)

    def _group_plan(
        self,
        flags: BrokerGroup | GroupSnapshot,
        known: BrokerGroup | None,
        members: list[InstanceSnapshot],
        queues: dict[str, QueueData],
        mappings: dict[str, TopicMapping],
    ) -> GroupPlan:
        name = flags.name
        members.sort(key=lambda one: (one.cluster != flags.cluster, one.broker_id))
        publishes = bool(members) and may_publish(
            known, members[0].broker_id, members[0].address, acting_master=flags.acting_master
        )
        if mappings and not publishes:
            self._left_out.append(f"group {name}: {len(mappings)} static mappings, which only its master may bring")
            mappings = {}
        there = self._table.queues_of(name)
        overwrites = (
            publishes and self._has_version_of(members[0]) and (bool(mappings) or not there.keys().isdisjoint(queues))
        )
        return GroupPlan(name, flags.zone, flags.acting_master, tuple(members), publishes, queues, mappings, overwrites)

    def _member(
        self, group: GroupSnapshot, known: BrokerGroup | None, member: InstanceSnapshot
    ) -> InstanceSnapshot | None:
        """None when it stays as it is."""
        told = _told(member)
        address = known.addresses.get(member.broker_id) if known else None
        now: Fields | None = None
        if address is not None:
            now = {key: value for key, value in _told(self._known(group.name, member, address)).items() if key in told}
        elif known and member.address in known.addresses.values():
            now = {"address": None}  # It sits there under another id, and would leave that.
        name = f"{member.cluster}/{group.name}/{member.broker_id}"
        step = self._step("broker", name, now, told)
        return self._completed(group.name, member) if step.writes else None

    def _known(self, broker: str, member: InstanceSnapshot, address: str) -> InstanceSnapshot:
        """Who sits there now."""
        cluster = member.cluster
        instance = self._table.instances.get(join_instance_name(cluster, address))
        if instance is None or instance.broker != broker:
            return InstanceSnapshot(member.broker_id, address, cluster)
        return InstanceSnapshot(
            member.broker_id,
            address,
            cluster,
            instance.ha_address,
            instance.timeout_ms,
            instance.data_version,
            instance.filters,
        )

    def _completed(self, broker: str, member: InstanceSnapshot) -> InstanceSnapshot:
        """What the snapshot does not tell stays as it is."""
        known = self._known(broker, member, member.address)
        return replace(
            member,
            ha_address=member.ha_address or known.ha_address,
            timeout_ms=member.timeout_ms or known.timeout_ms,
            data_version=member.data_version or known.data_version,
        )

    def _has_version_of(self, member: InstanceSnapshot) -> bool:
        instance = self._table.instances.get(join_instance_name(member.cluster, member.address))
        return instance is not None and instance.data_version == member.data_version

    def _queues(self, group: GroupSnapshot, known: BrokerGroup | None) -> dict[str, QueueData]:
        if known is None:
            self._counts["topic"]["create"] += len(group.queues)
            return dict(group.queues)
        return self._things("topic", group.name, self._table.queues_of(group.name), group.queues, queue_fields)

    def _mappings(self, group: GroupSnapshot) -> dict[str, TopicMapping]:
        known = self._table.mappings_of_broker(group.name)
        return self._things("mapping", group.name, known, group.mappings, mapping_fields)

    def _things(
        self,
        kind: str,
        broker: str,
        known: Mapping[str, Value],
        wanted: Mapping[str, Value],
        fields: Callable[[Value], Fields],
    ) -> dict[str, Value]:
        """Those to be written, by topic."""
        found = {}
        for topic, value in wanted.items():
            there = known.get(topic)
            now = None if there is None else fields(there)
            if self._step(kind, f"{topic} @ {broker}", now, fields(value)).writes:
                found[topic] = value
        return found

    def _step(self, kind: str, name: str, now: Fields | None, then: Fields) -> Step:
        if now is None:
            step = Step(kind, name, "create", {key: (None, value) for key, value in then.items() if value is not None})
        else:
            found = compare_fields(kind, name, now, then)
            differing = {one.field: (one.here, one.there) for one in found if one.field is not None}
            action: Action = "same" if not differing else "replace" if self._replace_known else "keep"
            step = Step(kind, name, action, differing)
        self._counts[kind][step.action] += 1
        if step.action != "same":
            self._steps.append(step)
        return step


def _flags(group: BrokerGroup | GroupSnapshot) -> Fields:
    return {"zone": group.zone, "acting master": group.acting_master}


def _told(member: InstanceSnapshot) -> Fields:
    version = member.data_version
    fields: Fields = {
        "address": member.address,
        "ha address": member.ha_address or None,
        "timeout ms": member.timeout_ms,
        "data version": None if version is None else version.pack(),
        "filters": member.filters,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _value(value: str | None) -> Fields | None:
    return None if value is None else value_field(value)
