"""The rules of the route table in their plainest form: dictionaries, and one step of a rule after the other.

This is what the Lua scripts must agree with, so it owes nothing to them: it takes from the product the
plain values of `model` and no rule. It is slow and holds everything in memory on purpose. Input is taken to
be legal (the ports check it).

The numbers of steps are those by which RocketMQ's own registration is told: one after the other, 1 to 15.
Where Routebook departs from RocketMQ on purpose, the line says "departure".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from routebook.model.broker import DEFAULT_TIMEOUT_MS, MASTER_ID, DataVersion, Registration
from routebook.model.topic import PERM_READ_WRITE, QueueData, TopicMapping

Member = tuple[str, str]
"""Cluster and address: what one live entry is known by."""


@dataclass
class Group:
    """Brokers sharing a name. It keeps the cluster of its first registration."""

    cluster: str
    zone: str | None = None
    acting_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)


@dataclass
class LiveEntry:
    """One instance that has registered and is not known to be gone."""

    broker: str
    broker_id: int
    incarnation: str
    timeout_ms: int
    ha_address: str
    data_version: DataVersion | None
    deadline_ms: int


@dataclass(frozen=True)
class Notice:
    """Members of a group are told that its smallest id is another one."""

    broker: str
    min_id: int
    min_address: str
    receivers: tuple[str, ...]
    offline: str | None = None
    ha_address: str | None = None


Outcome = Literal["accepted", "turned-down", "refused"]


@dataclass(frozen=True)
class Answer:
    """What a registering broker is told."""

    outcome: Outcome
    incarnation: str = ""
    master_address: str = ""
    master_ha_address: str = ""


@dataclass(frozen=True)
class Unregistration:
    """A wish to remove one address. `incarnation` None means: whichever holds the entry now."""

    cluster: str
    address: str
    broker: str
    incarnation: str | None = None
    broker_id: int = 0


@dataclass
class ReferenceRegistry:
    """All tables, and one method an operation."""

    now_ms: Callable[[], int]
    delete_topic_with_broker_registration: bool = False

    clusters: dict[str, set[str]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    live: dict[Member, LiveEntry] = field(default_factory=dict)
    filters: dict[Member, tuple[str, ...]] = field(default_factory=dict)
    mappings: dict[str, dict[str, TopicMapping]] = field(default_factory=dict)
    kv: dict[str, dict[str, str]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    # Registration

    def register(self, said: Registration, incarnation: str) -> Answer:
        """Steps 1 to 15. `incarnation` is used when the address takes a seat that it did not have."""
        member = (said.cluster, said.address)
        # 1 and 2
        self.clusters.setdefault(said.cluster, set()).add(said.broker)
        first = said.broker not in self.groups
        group = self.groups.setdefault(said.broker, Group(said.cluster))
        # 3: the last one to speak decides for all, even when it is turned down afterwards
        group.acting_master = said.acting_master is True
        group.zone = said.zone
        # 4
        lowered = bool(group.addresses) and said.broker_id < min(group.addresses)
        # 5: one address, one id
        for other_id in [
            i for i, address in group.addresses.items() if address == said.address and i != said.broker_id
        ]:
            del group.addresses[other_id]
        # 6
        if self._another_one_is_ahead(group, said):
            self.live.pop(member, None)
            return Answer("turned-down")
        # 7; departure: a registration that says it is complete may hold one topic
        if said.broker_id not in group.addresses and len(keys_of_table(said)) == 1 and not said.full:
            return Answer("refused")
        # 8
        before = group.addresses.get(said.broker_id)
        group.addresses[said.broker_id] = said.address
        first = first or before is None
        # 9 and 10
        master = said.broker_id == MASTER_ID
        prime = said.acting_master is not None and not master and said.broker_id == min(group.addresses)
        if master or prime:
            self._publish(said, group, first=first, prime=prime)
        # 11; departure: the incarnation tells this stay on the seat from every other one
        known = self.live.get(member)
        stays = known is not None and before == said.address
        self.live[member] = self._live_entry(said, known.incarnation if known and stays else incarnation)
        # 12
        if said.filters is not None:
            self._set_filters(member, said.filters)
        # 14
        if lowered:
            self._tell_of_newcomer(said, group)
        # 13 and 15
        return self._answer(said, group)

    def _tell_of_newcomer(self, said: Registration, group: Group) -> None:
        """All but the new smallest one are told; a sole member tells itself."""
        others = [address for broker_id, address in sorted(group.addresses.items()) if broker_id != said.broker_id]
        receivers = tuple(others or [said.address])
        self.notices.append(Notice(said.broker, said.broker_id, said.address, receivers, ha_address=said.ha_address))

    def _another_one_is_ahead(self, group: Group, said: Registration) -> bool:
        """Step 6: the seat is taken by a live address with the greater state version."""
        holder = group.addresses.get(said.broker_id)
        if holder is None or holder == said.address:
            return False
        other = self.live.get((said.cluster, holder))
        return other is not None and state_version(other.data_version) > state_version(said.data_version)

    def _publish(self, said: Registration, group: Group, *, first: bool, prime: bool) -> None:
        """Step 10. Topics merge; they replace only where an option or the caller asks for it."""
        known = self.live.get((said.cluster, said.address))
        # departure: no data version counts as changed each time
        changed = known is None or said.data_version is None or known.data_version != said.data_version
        by_option = self.delete_topic_with_broker_registration and not said.mappings
        if by_option or said.replace_topics:
            mine = [topic for topic, entries in self.topics.items() if said.broker in entries]
            for topic in [topic for topic in mine if topic not in keys_of_table(said)]:
                self._drop_entry(topic, said.broker)
        for topic, queues in said.topics.items():
            entries = self.topics.setdefault(topic, {})
            if first or changed or said.broker not in entries:
                only_reads = prime and group.acting_master
                entries[said.broker] = queues.without_write() if only_reads else queues
        if first or changed:
            for key, mapping in said.mappings.items():
                self.mappings.setdefault(key, {})[mapping.bname] = mapping

    def _live_entry(self, said: Registration, incarnation: str) -> LiveEntry:
        timeout_ms = DEFAULT_TIMEOUT_MS if said.timeout_ms is None else said.timeout_ms
        return LiveEntry(
            broker=said.broker,
            broker_id=said.broker_id,
            incarnation=incarnation,
            timeout_ms=timeout_ms,
            ha_address=said.ha_address,
            data_version=said.data_version,
            deadline_ms=self.now_ms() + timeout_ms,
        )

    def _set_filters(self, member: Member, filters: tuple[str, ...]) -> None:
        if filters:
            self.filters[member] = filters
        else:
            self.filters.pop(member, None)

    def _answer(self, said: Registration, group: Group) -> Answer:
        incarnation = self.live[said.cluster, said.address].incarnation
        master = group.addresses.get(MASTER_ID)
        if said.broker_id != MASTER_ID and master is not None:
            entry = self.live.get((said.cluster, master))
            if entry is not None:
                return Answer("accepted", incarnation, master, entry.ha_address)
        return Answer("accepted", incarnation)

    # Signs of life and their absence

    def heartbeat(self, cluster: str, address: str) -> bool:
        """Whether the instance was known; an unknown one is not made."""
        entry = self.live.get((cluster, address))
        if entry is None:
            return False
        entry.deadline_ms = self.now_ms() + entry.timeout_ms
        return True

    def due(self) -> list[Member]:
        return [member for member, entry in self.live.items() if entry.deadline_ms < self.now_ms()]

    def expire(self, members: Iterable[Member]) -> list[Member]:
        """Removes those of the members that are due, and says which."""
        gone = [member for member in members if member in self.live and self.live[member].deadline_ms < self.now_ms()]
        self._drop_all(gone)
        return gone

    def lose(self, members: Iterable[Member]) -> list[Member]:
        """Those whose last connection was lost, and who did not come back in time."""
        gone = [member for member in members if member in self.live]
        self._drop_all(gone)
        return gone

    def _drop_all(self, gone: Iterable[Member]) -> None:
        offline: dict[str, str] = {}
        for cluster, address in gone:
            self._drop_one(cluster, address, offline)
        self._tell_of_departures(offline)

    def _drop_one(self, cluster: str, address: str, offline: dict[str, str]) -> None:
        entry = self.live.pop((cluster, address))
        self.filters.pop((cluster, address), None)
        group = self.groups.get(entry.broker)
        # departure: an entry without a seat is dropped all the same
        if group is None or address not in group.addresses.values():
            return
        # departure: a seat that the group's own cluster still hears from stays; any other goes
        if cluster != group.cluster and (group.cluster, address) in self.live:
            return
        if group.addresses[min(group.addresses)] == address:
            offline[entry.broker] = address
        self._leave(cluster, entry.broker, address)
        self._master_may_be_lost(entry.broker)

    def _tell_of_departures(self, offline: Mapping[str, str]) -> None:
        """Once a group, with the last address that left its smallest id; all that are left are told."""
        for broker, address in offline.items():
            group = self.groups.get(broker)
            if group is not None and group.addresses and group.acting_master:
                seats = dict(sorted(group.addresses.items()))
                smallest = min(seats)
                self.notices.append(Notice(broker, smallest, seats[smallest], tuple(seats.values()), offline=address))

    # Unregistration

    def unregister(self, batch: Iterable[Unregistration]) -> list[bool]:
        """For each wish whether it was carried out (departure: a newer incarnation stays)."""
        wishes = list(batch)
        done = [self._is_current(wish) for wish in wishes]
        carried_out = [wish for wish, current in zip(wishes, done, strict=True) if current]
        offline: dict[str, str] = {}
        for wish in carried_out:
            seats = self.groups[wish.broker].addresses if wish.broker in self.groups else {}
            # departure: who sits nowhere leaves nothing, whatever id he names
            if seats and min(seats) == wish.broker_id and seats[wish.broker_id] == wish.address:
                offline[wish.broker] = wish.address
            self.live.pop((wish.cluster, wish.address), None)
            self.filters.pop((wish.cluster, wish.address), None)
            self._leave(wish.cluster, wish.broker, wish.address)
        for wish in carried_out:
            self._master_may_be_lost(wish.broker)
        self._tell_of_departures(offline)
        return done

    def _is_current(self, wish: Unregistration) -> bool:
        if wish.incarnation is None:
            return True
        entry = self.live.get((wish.cluster, wish.address))
        return entry is None or entry.incarnation == wish.incarnation

    def _leave(self, cluster: str, broker: str, address: str) -> None:
        """Removes by address, whatever the id. An empty group goes with all its entries; mappings stay."""
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
            self._drop_entry(topic, broker)

    def _master_may_be_lost(self, broker: str) -> None:
        group = self.groups.get(broker)
        if group is None or not group.acting_master or MASTER_ID in group.addresses:
            return
        for entries in self.topics.values():
            if broker in entries:
                entries[broker] = entries[broker].without_write()

    # Topics and permissions

    def register_topic(self, topic: str, queues: Mapping[str, QueueData]) -> list[str]:
        """The broker names whose entry was put.

        A new topic wants all names known; a known one stops at the first unknown name and keeps what was put.
        """
        known_topic = topic in self.topics
        if not known_topic and not all(broker in self.groups for broker in queues):
            return []
        put: list[str] = []
        for broker, data in queues.items():
            if broker not in self.groups:
                break
            self.topics.setdefault(topic, {})[broker] = replace(data, by_request=True)
            put.append(broker)
        return put

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """The number of entries dropped."""
        names = list(self.topics.get(topic, {}))
        if cluster is not None:
            names = [name for name in names if name in self.clusters.get(cluster, set())]
        for name in names:
            self._drop_entry(topic, name)
        return len(names)

    def set_write_permission(self, broker: str, *, writable: bool) -> int:
        """The number of entries of the name, changed or not. Adding drops all bits but read and write."""
        touched = 0
        for entries in self.topics.values():
            if broker in entries:
                now = entries[broker]
                entries[broker] = replace(now, perm=PERM_READ_WRITE) if writable else now.without_write()
                touched += 1
        return touched

    def _drop_entry(self, topic: str, broker: str) -> None:
        del self.topics[topic][broker]
        if not self.topics[topic]:
            del self.topics[topic]

    # Key-values

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        self.kv.setdefault(namespace, {})[key] = value

    def delete_kv(self, namespace: str, key: str) -> bool:
        """Whether it was there. The namespace stays, possibly empty."""
        return self.kv.get(namespace, {}).pop(key, None) is not None


def state_version(data_version: DataVersion | None) -> int:
    return data_version.state_version if data_version is not None else 0


def keys_of_table(said: Registration) -> frozenset[str]:
    """The keys that the topics came under, which need not be their names."""
    return said.table_keys if said.table_keys is not None else frozenset(said.topics)
