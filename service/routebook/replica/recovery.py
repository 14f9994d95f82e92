"""After the store lost data: what readers are shown until the fleet has registered again.

Invariant: readers are shown what the store holds now, plus everything of the table before the loss that has not been
contradicted since. For each seat and each entry, the store's new value wins. A deletion in the new history applies to
both tables. Nothing is stored twice: an object is *carried over* if the shown table has it and the store's table does
not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from routebook.model.broker import BrokerGroup, Instance, QueueData
from routebook.replica.load import Reread
from routebook.replica.table import Table
from routebook.store.history import Change
from routebook.store.reads import GroupImage

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """For status and metrics."""

    awaited_seats: int
    spent_ms: int
    window_ms: int


class Recovery:
    """Maintains the shown table while the store's own table fills up again. Has no clock: its owner reports how much
    time has passed.
    """

    def __init__(self, shown: Table, window_ms: int) -> None:
        self.shown = shown
        self._window_ms = window_ms
        self._awaited: dict[str, int] = {}
        """Broker name → number of its seats that are not back yet."""
        self._spent_ms = 0

    @property
    def state(self) -> RecoveryState:
        return RecoveryState(sum(self._awaited.values()), self._spent_ms, self._window_ms)

    def spend(self, elapsed_ms: int) -> None:
        """Time in which brokers could have registered. Time without contact to the store does not count."""
        self._spent_ms += elapsed_ms

    def is_over(self, table: Table) -> bool:
        """Everything is back, or the window has passed. Seats are not enough: a failover may lose a registration that
        added topics to an older seat, and its broker registers them again only after its period.
        """
        if self._spent_ms >= self._window_ms:
            return True
        return not (
            self._awaited
            or self._carries_topics(table)
            or self.carried_kv(table)
            or self.carried_settings(table)
            or self.carried_identities(table)
        )

    def _carries_topics(self, table: Table) -> bool:
        """Everything stored is shown, so equal numbers mean that nothing is carried over."""
        return any(
            len(self.shown.queues_of(name)) != len(table.queues_of(name))
            or len(self.shown.mappings_of_broker(name)) != len(table.mappings_of_broker(name))
            for name in table.names()
        )

    # -- what has to be written back to the store

    def carried_kv(self, table: Table) -> dict[str, dict[str, str]]:
        """Key-value namespace → keys and values that the store lacks."""
        found = {name: _lacking(values, table.kv.get(name, {})) for name, values in self.shown.kv.items()}
        return {name: values for name, values in found.items() if values}

    def carried_settings(self, table: Table) -> dict[str, str]:
        """Settings changed at run time that the store lacks."""
        return _lacking(self.shown.settings, table.settings)

    def carried_identities(self, table: Table) -> dict[str, str]:
        return _lacking(self.shown.identities, table.identities)

    def carried_queues(self, table: Table) -> dict[str, dict[str, QueueData]]:
        """Broker → entries that came from register-topic, which no broker registers. Only of groups that are back."""
        found = {name: _lacking(self.shown.queues_of(name), table.queues_of(name)) for name in table.groups}
        by_request = {
            name: {topic: queue for topic, queue in queues.items() if queue.by_request}
            for name, queues in found.items()
        }
        return {name: queues for name, queues in by_request.items() if queues}

    # -- following the store

    def rebase(self, before: Table, now: Table) -> Iterator[set[str]]:
        """Replaces the store's table as a whole. In steps of one broker; each yields the topics whose shown route may
        have changed.
        """
        for broker in sorted(self.shown.names() | now.names()):
            yield self.merge_group(broker, before.image_of(broker), now.image_of(broker))
        changed: set[str] = set()
        for name in {*self.shown.instances, *now.instances}:
            changed |= self.merge_instance(name, before.instances.get(name), now.instances.get(name))
        for namespace in {*self.shown.kv, *now.kv}:
            changed |= self.merge_kv(namespace, before.kv.get(namespace), now.kv.get(namespace))
        self.merge_settings(before.settings, now.settings)
        self.merge_identities(before.identities, now.identities)
        yield changed

    def apply(self, table: Table, changes: Sequence[Change], read: Reread) -> set[str]:
        """Applies changes to the store's table and to the shown one. Returns the topics whose shown route may have
        changed.
        """
        changed: set[str] = set()
        for change in changes:
            changed |= self.delete(change)
        for broker, image in read.groups.items():
            group_before = table.image_of(broker, None if image.all_queues else image.queues)
            table.apply_group(broker, image)
            changed |= self.merge_group(broker, group_before, image)
        for instance_name, instance in read.instances.items():
            instance_before = table.instances.get(instance_name)
            table.apply_instance(instance_name, instance)
            changed |= self.merge_instance(instance_name, instance_before, instance)
        for namespace, values in read.kv.items():
            values_before = table.kv.get(namespace)
            table.apply_kv(namespace, values)
            changed |= self.merge_kv(namespace, values_before, values)
        if read.settings is not None:
            settings_before = dict(table.settings)
            table.apply_settings(read.settings)
            self.merge_settings(settings_before, read.settings)
        if read.identities is not None:
            identities_before = dict(table.identities)
            table.apply_identities(read.identities)
            self.merge_identities(identities_before, read.identities)
        return changed

    def delete(self, change: Change) -> set[str]:
        """A deletion in the new history may concern something that only the shown table has. If the store has got the
        object again since, the merge that follows restores it.
        """
        changed: set[str] = set()
        if change.kind == "broker-removed" and change.broker:
            changed |= self._empty_seat(change.broker, change.fields["addr"])
            for instance_name in change.instance_names:
                changed |= self.shown.apply_instance(instance_name, None)
        if change.broker and (gone := [item["t"] for item in change.fields.get("queues", ()) if "x" in item]):
            image = self.shown.image_of(change.broker, gone)
            changed |= self.shown.apply_group(change.broker, replace(image, queues=dict.fromkeys(gone)))
        if change.kind == "kv-deleted":
            namespace, key = change.fields["namespace"], change.fields["key"]
            if namespace in self.shown.kv:
                values = {name: value for name, value in self.shown.kv[namespace].items() if name != key}
                changed |= self.shown.apply_kv(namespace, values)
        if change.kind == "identity-changed" and change.fields["cause"] == "revoked":
            name = change.fields["name"]
            self.shown.apply_identities({key: value for key, value in self.shown.identities.items() if key != name})
        if change.kind == "settings-changed" and change.fields["value"] is None:
            key = change.fields["key"]
            self.shown.apply_settings({name: text for name, text in self.shown.settings.items() if name != key})
        return changed

    def _empty_seat(self, broker: str, address: str) -> set[str]:
        """Removal is by address. A group without seats is left to the merge, which may need its queues."""
        group = self.shown.groups.get(broker)
        if group is None or address not in group.addresses.values():
            return set()
        others = {broker_id: other for broker_id, other in group.addresses.items() if other != address}
        image = self.shown.image_of(broker, ())
        return self.shown.apply_group(broker, replace(image, group=replace(group, addresses=others)))

    def merge_group(self, broker: str, before: GroupImage, now: GroupImage) -> set[str]:
        """The store's image of the group was `before` and is `now`; both have the same topics, or both all of them."""
        shown = self.shown.image_of(broker, None if now.all_queues else now.queues)
        changed = self.shown.apply_group(broker, carry_over(shown, before, now))
        self._count_awaited_seats(broker, now.group)
        return changed

    def merge_instance(self, instance_name: str, before: Instance | None, now: Instance | None) -> set[str]:
        newest = now if now or before else self.shown.instances.get(instance_name)
        return self.shown.apply_instance(instance_name, newest)

    def merge_kv(self, namespace: str, before: Mapping[str, str] | None, now: Mapping[str, str] | None) -> set[str]:
        shown = self.shown.kv.get(namespace)
        if shown is None and now is None:
            return set()
        return self.shown.apply_kv(namespace, _newest_of(shown or {}, before or {}, now or {}))

    def merge_settings(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        self.shown.apply_settings(_newest_of(self.shown.settings, before, now))

    def merge_identities(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        self.shown.apply_identities(_newest_of(self.shown.identities, before, now))

    def _count_awaited_seats(self, broker: str, now: BrokerGroup | None) -> None:
        shown = self.shown.groups.get(broker)
        missing = _lacking(shown.addresses, now.addresses if now else {}) if shown else {}
        if missing:
            self._awaited[broker] = len(missing)
        else:
            self._awaited.pop(broker, None)


def is_seat_carried(view: Table, table: Table, broker: str, address: str) -> bool:
    """Whether readers see the address in this group although the store has lost it."""
    return address in _addresses(view, broker) - _addresses(table, broker)


def is_key_carried(view: Table, table: Table, namespace: str, key: str) -> bool:
    return key in view.kv.get(namespace, {}) and key not in table.kv.get(namespace, {})


def brokers_with_carried(topic: str, view: Table, table: Table, *, cluster: str | None) -> dict[str, str]:
    """Broker → cluster of the brokers whose entry for the topic is carried over, of one cluster or (None) of all."""
    if view is table:
        return {}
    listed = None if cluster is None else view.clusters.get(cluster, set())
    return {
        name: group.cluster
        for name in view.brokers_of(topic)
        if (group := view.groups.get(name)) is not None
        and topic not in table.queues_of(name)
        and (listed is None or name in listed)
    }


def _addresses(table: Table, broker: str) -> set[str]:
    group = table.groups.get(broker)
    return set(group.addresses.values()) if group else set()


def carry_over(shown: GroupImage, before: GroupImage, now: GroupImage) -> GroupImage:
    """What to show of a group from now on. A group without any known seat is not carried over."""
    group = _carry_group(shown.group, before.group, now.group)
    mappings = {**shown.mappings, **now.mappings}
    if group is None:
        return replace(now, mappings=mappings)
    # If the last seat that the store had is removed, its topics still are those of the seats that are carried over.
    former = {} if now.group is None else before.queues
    queues = _newest_of(shown.queues, former, now.queues)
    return GroupImage(
        group=group,
        clusters=now.clusters | (shown.clusters - before.clusters),
        queues=queues if now.all_queues else {topic: queues.get(topic) for topic in now.queues},
        all_queues=now.all_queues,
        mappings=mappings,
    )


def _carry_group(shown: BrokerGroup | None, before: BrokerGroup | None, now: BrokerGroup | None) -> BrokerGroup | None:
    """An id has one address, and an address has one id."""
    if shown is None:
        return now
    former, taken = before.addresses if before else {}, now.addresses if now else {}
    carried = {
        broker_id: address
        for broker_id, address in shown.addresses.items()
        if former.get(broker_id) != address and broker_id not in taken and address not in taken.values()
    }
    if now is None:
        return replace(shown, addresses=carried) if carried else None
    return replace(now, addresses=dict(sorted({**carried, **taken}.items())))


def _newest_of(
    shown: Mapping[str, _Value | None], before: Mapping[str, _Value | None], now: Mapping[str, _Value | None]
) -> dict[str, _Value]:
    """What the store has now, plus what is shown and was never in the store of the new history."""
    carried = {key: value for key, value in shown.items() if before.get(key) is None}
    return {key: value for key, value in {**carried, **_present(now)}.items() if value is not None}


def _present(values: Mapping[str, _Value | None]) -> Mapping[str, _Value | None]:
    return {key: value for key, value in values.items() if value is not None}


def _lacking(shown: Mapping[_Key, _Value], stored: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
    """Entries of `shown` that are not in `stored`. Everything stored is shown, so equal sizes mean that none lacks."""
    if len(shown) == len(stored):
        return {}
    return {key: value for key, value in shown.items() if key not in stored}
