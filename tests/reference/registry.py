"""A reference model of the route table: dictionaries, and rules as plain steps.

The tests compare the Lua scripts with it. So it uses the value types of `model` but no rule of the product. Speed and
memory do not matter here. The input is assumed to be valid, since the ports check it.

Steps 1 to 15 are those of RocketMQ's own registration, in its order. The word "difference" marks where Routebook
differs from RocketMQ on purpose.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from routebook.model.broker import (
    DEFAULT_TIMEOUT_MS,
    MASTER_ID,
    PERM_READ_WRITE,
    DataVersion,
    QueueData,
    Registration,
    TopicMapping,
)

InstanceKey = tuple[str, str]
"""Cluster and address."""


@dataclass
class Group:
    """All brokers that share a broker name. Its cluster is that of its first registration."""

    cluster: str
    zone: str | None = None
    acting_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)


@dataclass
class Instance:
    """A cluster and address that has registered and was not removed."""

    broker: str
    broker_id: int
    incarnation: str
    timeout_ms: int
    ha_address: str
    data_version: DataVersion | None
    deadline_ms: int


@dataclass(frozen=True)
class Notice:
    """Notification of a group's brokers that the smallest broker id of the group has changed."""

    broker: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline: str | None = None
    ha_address: str | None = None


Outcome = Literal["accepted", "turned-down", "refused"]


@dataclass(frozen=True)
class Answer:
    """The answer to a registration."""

    outcome: Outcome
    incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""


@dataclass(frozen=True)
class Unregistration:
    """A request to remove one address. `incarnation` None matches any incarnation."""

    cluster: str
    address: str
    broker: str
    incarnation: str | None = None
    broker_id: int = 0


@dataclass
class ReferenceRegistry:
    """The tables, with one method per operation."""

    now_ms: Callable[[], int]
    delete_topic_with_broker_registration: bool = False

    clusters: dict[str, set[str]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    instances: dict[InstanceKey, Instance] = field(default_factory=dict)
    filters: dict[InstanceKey, tuple[str, ...]] = field(default_factory=dict)
    mappings: dict[str, dict[str, TopicMapping]] = field(default_factory=dict)
    kv: dict[str, dict[str, str]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    # Registration

    def register(self, registration: Registration, incarnation: str) -> Answer:
        """Steps 1 to 15. `incarnation` is used when the address takes a seat that it did not have."""
        key = (registration.cluster, registration.address)
        # 1 and 2
        self.clusters.setdefault(registration.cluster, set()).add(registration.broker)
        first = registration.broker not in self.groups
        group = self.groups.setdefault(registration.broker, Group(registration.cluster))
        # 3: each registration sets the flags of the group, even if it is turned down afterwards
        group.acting_master = registration.acting_master is True
        group.zone = registration.zone
        # 4
        lowered = bool(group.addresses) and registration.broker_id < min(group.addresses)
        # 5: an address has one id
        for other_id in [
            i
            for i, address in group.addresses.items()
            if address == registration.address and i != registration.broker_id
        ]:
            del group.addresses[other_id]
        # 6
        if self._holder_is_ahead(group, registration):
            self.instances.pop(key, None)
            return Answer("turned-down")
        # 7; difference: a registration marked as full may have a single topic
        if (
            registration.broker_id not in group.addresses
            and len(keys_of_table(registration)) == 1
            and not registration.full
        ):
            return Answer("refused")
        # 8
        before = group.addresses.get(registration.broker_id)
        group.addresses[registration.broker_id] = registration.address
        first = first or before is None
        # 9 and 10
        master = registration.broker_id == MASTER_ID
        prime = registration.acting_master is not None and not master and registration.broker_id == min(group.addresses)
        if master or prime:
            self._publish(registration, group, first=first, prime=prime)
        # 11; difference: an address gets a new incarnation when it takes a seat that it did not have
        known = self.instances.get(key)
        keeps_seat = known is not None and before == registration.address
        self.instances[key] = self._new_instance(
            registration, known.incarnation if known and keeps_seat else incarnation
        )
        # 12
        if registration.filters is not None:
            self._set_filters(key, registration.filters)
        # 14
        if lowered:
            self._notify_of_new_smallest_id(registration, group)
        # 13 and 15
        return self._answer(registration, group)

    def _notify_of_new_smallest_id(self, registration: Registration, group: Group) -> None:
        """Notifies all brokers of the group but the new one; a broker that is alone notifies itself."""
        others = [
            address for broker_id, address in sorted(group.addresses.items()) if broker_id != registration.broker_id
        ]
        receivers = tuple(others or [registration.address])
        self.notices.append(
            Notice(
                registration.broker,
                registration.broker_id,
                registration.address,
                receivers,
                ha_address=registration.ha_address,
            )
        )

    def _holder_is_ahead(self, group: Group, registration: Registration) -> bool:
        """Step 6: another instance has the seat, and its state version is greater."""
        holder = group.addresses.get(registration.broker_id)
        if holder is None or holder == registration.address:
            return False
        other = self.instances.get((registration.cluster, holder))
        return other is not None and state_version(other.data_version) > state_version(registration.data_version)

    def _publish(self, registration: Registration, group: Group, *, first: bool, prime: bool) -> None:
        """Step 10. Topics are merged. They replace the former ones only if the option or the registration says so."""
        known = self.instances.get((registration.cluster, registration.address))
        # difference: a registration without a data version always counts as changed
        changed = known is None or registration.data_version is None or known.data_version != registration.data_version
        by_option = self.delete_topic_with_broker_registration and not registration.mappings
        if by_option or registration.replace_topics:
            former = [topic for topic, entries in self.topics.items() if registration.broker in entries]
            for topic in [topic for topic in former if topic not in keys_of_table(registration)]:
                self._delete_entry(topic, registration.broker)
        for topic, queues in registration.topics.items():
            entries = self.topics.setdefault(topic, {})
            if first or changed or registration.broker not in entries:
                is_read_only = prime and group.acting_master
                entries[registration.broker] = queues.without_write() if is_read_only else queues
        if first or changed:
            for key, mapping in registration.mappings.items():
                self.mappings.setdefault(key, {})[mapping.bname] = mapping

    def _new_instance(self, registration: Registration, incarnation: str) -> Instance:
        timeout_ms = DEFAULT_TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms
        return Instance(
            broker=registration.broker,
            broker_id=registration.broker_id,
            incarnation=incarnation,
            timeout_ms=timeout_ms,
            ha_address=registration.ha_address,
            data_version=registration.data_version,
            deadline_ms=self.now_ms() + timeout_ms,
        )

    def _set_filters(self, key: InstanceKey, filters: tuple[str, ...]) -> None:
        if filters:
            self.filters[key] = filters
        else:
            self.filters.pop(key, None)

    def _answer(self, registration: Registration, group: Group) -> Answer:
        incarnation = self.instances[registration.cluster, registration.address].incarnation
        master = group.addresses.get(MASTER_ID)
        if registration.broker_id != MASTER_ID and master is not None:
            entry = self.instances.get((registration.cluster, master))
            if entry is not None:
                return Answer("accepted", incarnation, master, entry.ha_address)
        return Answer("accepted", incarnation)

    # Heartbeats and expiry

    def heartbeat(self, cluster: str, address: str) -> bool:
        """Returns whether the instance is known. An unknown one is not created."""
        entry = self.instances.get((cluster, address))
        if entry is None:
            return False
        entry.deadline_ms = self.now_ms() + entry.timeout_ms
        return True

    def due(self) -> list[InstanceKey]:
        return [key for key, entry in self.instances.items() if entry.deadline_ms < self.now_ms()]

    def expire(self, keys: Iterable[InstanceKey]) -> list[InstanceKey]:
        """Removes those of the instances that are due, and returns their keys."""
        removed = [key for key in keys if key in self.instances and self.instances[key].deadline_ms < self.now_ms()]
        self._remove_all(removed)
        return removed

    def remove_lost(self, keys: Iterable[InstanceKey]) -> list[InstanceKey]:
        """Removes instances whose last connection was lost and that did not return in time."""
        removed = [key for key in keys if key in self.instances]
        self._remove_all(removed)
        return removed

    def _remove_all(self, removed: Iterable[InstanceKey]) -> None:
        offline: dict[str, str] = {}
        for cluster, address in removed:
            self._remove_one(cluster, address, offline)
        self._notify_of_departures(offline)

    def _remove_one(self, cluster: str, address: str, offline: dict[str, str]) -> None:
        entry = self.instances.pop((cluster, address))
        self.filters.pop((cluster, address), None)
        group = self.groups.get(entry.broker)
        # difference: an instance without a seat is removed as well
        if group is None or address not in group.addresses.values():
            return
        # difference: a seat remains if the address still has an instance in the group's own cluster
        if cluster != group.cluster and (group.cluster, address) in self.instances:
            return
        if group.addresses[min(group.addresses)] == address:
            offline[entry.broker] = address
        self._remove_address(cluster, entry.broker, address)
        self._clear_write_if_master_is_lost(entry.broker)

    def _notify_of_departures(self, offline: Mapping[str, str]) -> None:
        """Notifies the remaining brokers once per group, with the last address that lost the smallest id."""
        for broker, address in offline.items():
            group = self.groups.get(broker)
            if group is not None and group.addresses and group.acting_master:
                seats = dict(sorted(group.addresses.items()))
                smallest = min(seats)
                self.notices.append(Notice(broker, smallest, seats[smallest], tuple(seats.values()), offline=address))

    # Unregistration

    def unregister(self, batch: Iterable[Unregistration]) -> list[bool]:
        """Returns for each request whether it was carried out. Difference: a newer incarnation is not removed."""
        requests = list(batch)
        done = [self._is_current(request) for request in requests]
        carried_out = [request for request, current in zip(requests, done, strict=True) if current]
        offline: dict[str, str] = {}
        for request in carried_out:
            seats = self.groups[request.broker].addresses if request.broker in self.groups else {}
            # difference: an address without a seat frees none, whatever id the request names
            if seats and min(seats) == request.broker_id and seats[request.broker_id] == request.address:
                offline[request.broker] = request.address
            self.instances.pop((request.cluster, request.address), None)
            self.filters.pop((request.cluster, request.address), None)
            self._remove_address(request.cluster, request.broker, request.address)
        for request in carried_out:
            self._clear_write_if_master_is_lost(request.broker)
        self._notify_of_departures(offline)
        return done

    def _is_current(self, request: Unregistration) -> bool:
        if request.incarnation is None:
            return True
        entry = self.instances.get((request.cluster, request.address))
        return entry is None or entry.incarnation == request.incarnation

    def _remove_address(self, cluster: str, broker: str, address: str) -> None:
        """Removes the address from its seats. A group without seats is deleted with its topics but not its mappings."""
        group = self.groups.get(broker)
        if group is None:
            return
        for broker_id in [i for i, held in group.addresses.items() if held == address]:
            del group.addresses[broker_id]
        if group.addresses:
            return
        del self.groups[broker]
        names = self.clusters.get(cluster, set())
        names.discard(broker)
        if not names:
            self.clusters.pop(cluster, None)
        for topic in [t for t, entries in self.topics.items() if broker in entries]:
            self._delete_entry(topic, broker)

    def _clear_write_if_master_is_lost(self, broker: str) -> None:
        group = self.groups.get(broker)
        if group is None or not group.acting_master or MASTER_ID in group.addresses:
            return
        for entries in self.topics.values():
            if broker in entries:
                entries[broker] = entries[broker].without_write()

    # Topics and permissions

    def register_topic(self, topic: str, queues: Mapping[str, QueueData]) -> list[str]:
        """Returns the broker names whose entry was set.

        For a new topic, all names must be known. For a known topic, the first unknown name ends the request; entries
        set before it remain.
        """
        known_topic = topic in self.topics
        if not known_topic and not all(broker in self.groups for broker in queues):
            return []
        put: list[str] = []
        for broker, data in queues.items():
            if broker not in self.groups:
                break
            self.topics.setdefault(topic, {})[broker] = structs.replace(data, by_request=True)
            put.append(broker)
        return put

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Returns the number of deleted entries."""
        names = list(self.topics.get(topic, {}))
        if cluster is not None:
            names = [name for name in names if name in self.clusters.get(cluster, set())]
        for name in names:
            self._delete_entry(topic, name)
        return len(names)

    def set_write_permission(self, broker: str, *, writable: bool) -> int:
        """Returns how many entries the broker has, changed or not. Adding permission sets exactly read and write."""
        count = 0
        for entries in self.topics.values():
            if broker in entries:
                now = entries[broker]
                entries[broker] = structs.replace(now, perm=PERM_READ_WRITE) if writable else now.without_write()
                count += 1
        return count

    def _delete_entry(self, topic: str, broker: str) -> None:
        del self.topics[topic][broker]
        if not self.topics[topic]:
            del self.topics[topic]

    # Key-values

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        self.kv.setdefault(namespace, {})[key] = value

    def delete_kv(self, namespace: str, key: str) -> bool:
        """Returns whether the key existed. The namespace remains, even without keys."""
        return self.kv.get(namespace, {}).pop(key, None) is not None


def state_version(data_version: DataVersion | None) -> int:
    return data_version.state_version if data_version is not None else 0


def keys_of_table(registration: Registration) -> frozenset[str]:
    """The keys of the registered topics. In RocketMQ's table they may differ from the topics' names."""
    return registration.table_keys if registration.table_keys is not None else frozenset(registration.topics)
