"""The route table of one namespace in memory. It has no clock and does no input or output.

What was read from the store is applied as images; each is one consistent object (a broker group with some or all of its
queues, an instance, a key-value namespace). Every apply method returns the topics whose route may have changed, and
updates the digest of the table. Callers get live mappings, not copies: they may read them, but not keep them across an
`await`.

Applying a group of 70,000 topics takes long, so it has two phases. `work_out` collects what images change, in steps
between which lookups are answered; the table must stay as it is meanwhile. `put_in_place` then changes the table in one
short step, so that no reader sees half of a change.

The digest is one number for the whole table, equal on all workers that hold the same facts, in whatever order they
were applied. It is the sum, modulo 2^128, of one hash per fact: adding or removing a fact costs one hash. It is a sum
and not an exclusive-or, so that a fact that was added twice by mistake shows. No name or address contains a control
character (`model.names`), so NUL separates the parts of a fact; free text comes last.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from sys import intern
from types import MappingProxyType
from typing import Final, TypeVar, cast

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, BrokerGroup, Instance, QueueData, TopicMapping, parts_of
from routebook.model.names import join_instance_name
from routebook.store.reads import GroupImage

STEP_TOPICS: Final = 1_000
"""Topics worked out in one step, which takes less than a millisecond."""
TOPICS_PER_OBJECT: Final = 10
"""The work for a static mapping, or for a group without its topics, compared with a topic."""

_BYTES = 16
_MODULUS = 1 << 8 * _BYTES
_SHOWN = attrgetter("cluster", "zone", "acting_master", "addresses")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def finish(steps: Generator[None, None, _Result]) -> _Result:
    """Takes all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("_Result", end.value)


def hash_fact(*parts: str) -> int:
    text = "\0".join(parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest(), "big")


class Digest:
    """The running sum of the hashes of all facts."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0

    def add_all(self, hashes: Iterable[int]) -> None:
        self._sum = (self._sum + sum(hashes)) % _MODULUS

    def remove_all(self, hashes: Iterable[int]) -> None:
        self._sum = (self._sum - sum(hashes)) % _MODULUS

    @property
    def text(self) -> str:
        return f"{self._sum:032x}"


def group_facts(group: BrokerGroup | None) -> Iterator[int]:
    """Flags and seats. Without the revision, which no answer shows."""
    if group is None:
        return
    zone = "" if group.zone is None else f"={group.zone}"
    yield hash_fact("group", group.name, group.cluster, "1" if group.acting_master else "0", zone)
    for broker_id, address in group.addresses.items():
        yield hash_fact("seat", group.name, str(broker_id), address)


def membership_facts(broker: str, clusters: Iterable[str]) -> Iterator[int]:
    return (hash_fact("cluster", cluster, broker) for cluster in clusters)


def queue_hasher(broker: str) -> Callable[[Iterable[str], QueueData], int]:
    """Returns a function that adds up the hashes of queue entries, of topics that have the same value. Only these facts
    can number in the millions, so their beginning is hashed once for the broker, and their end made once for the value.
    """
    start = blake2b(f"queue\0{broker}\0".encode("utf-8", "surrogatepass"), digest_size=_BYTES).copy
    number = int.from_bytes

    def hash_queues(topics: Iterable[str], queue: QueueData) -> int:
        ending = b"\0" + _shared(queue)[1]
        total = 0
        for topic in topics:
            hashed = start()
            try:
                hashed.update(topic.encode() + ending)  # without an error handler, which doubles its time
            except UnicodeEncodeError:
                hashed.update(topic.encode("utf-8", "surrogatepass") + ending)
            total += number(hashed.digest())
        return total

    return hash_queues


def mapping_fact(broker: str, topic: str, mapping: TopicMapping) -> int:
    values = [mapping.topic, mapping.bname, mapping.total_queues, mapping.epoch, mapping.dirty, mapping.scope]
    return hash_fact("mapping", broker, topic, json.dumps([*values, list(mapping.current_ids)]))


def instance_facts(instance: Instance | None) -> Iterator[int]:
    if instance is None:
        return
    version = instance.data_version.pack() if instance.data_version else ""
    numbers = f"{instance.broker_id} {instance.timeout_ms} {version}"
    yield hash_fact(
        "instance", instance.instance_name, instance.broker, instance.incarnation, numbers, instance.ha_address
    )
    if instance.filters:
        yield hash_fact("filters", instance.instance_name, json.dumps(instance.filters))


def kv_facts(namespace: str, values: Iterable[tuple[str, str]] | None) -> Iterator[int]:
    """The namespace is a fact of its own: it remains when its last key is deleted."""
    if values is None:
        return
    yield hash_fact("kv-namespace", namespace)
    for key, value in values:
        yield hash_fact("kv", namespace, key, value)


def setting_fact(key: str, value: str) -> int:
    return hash_fact("setting", key, value)


def identity_fact(name: str, packed: str) -> int:
    """Only the revision of the packed identity: the digest is public, so no secret may enter it."""
    return hash_fact("identity", name, packed.partition(",")[0])


_DISTINCT_VALUES = 16_384
"""A fleet has some dozens of distinct queue values. The bound protects the memory against a hostile broker."""

_NO_QUEUES: Mapping[str, QueueData] = MappingProxyType({})


@lru_cache(maxsize=_DISTINCT_VALUES)
def _shared(queue: QueueData) -> tuple[QueueData, bytes]:
    """The single object that stands for this value everywhere, and its packed form for the digest."""
    return queue, queue.pack().encode()


@dataclass(slots=True)
class Updates:
    """What some images change, worked out beside the table. Taken up by `Table.put_in_place`."""

    groups: list[tuple[str, GroupImage]] = field(default_factory=list)
    queues: list[tuple[str, dict[str, QueueData], list[str]]] = field(default_factory=list)
    """Broker, entries to put, topics whose entries are removed."""
    brokers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic → names of the brokers that have an entry afterwards."""
    topics_gone: set[str] = field(default_factory=set)
    """Topics that no broker has afterwards. They are not in `brokers`."""
    mappings: list[tuple[str, dict[str, TopicMapping], list[str]]] = field(default_factory=list)
    """Broker, mappings to put, topics whose mappings are removed."""
    facts: int = 0
    """Hashes of added facts minus those of removed ones."""
    changed: set[str] = field(default_factory=set)
    """Topics whose route may change."""
    work_in_step: int = 0

    def ends_step(self, topics: int) -> bool:
        """Whether the work done since the last step, counted in topics, is now enough for one step."""
        self.work_in_step += topics
        if self.work_in_step < STEP_TOPICS:
            return False
        self.work_in_step = 0
        return True


class Queues:
    """All queue entries, indexed by broker and by topic.

    The only part of the table that grows to millions of entries, so it saves memory: values and names are shared
    objects, and the index by topic is a sorted tuple of broker names without the values. Topics of the same brokers
    usually share one tuple. Measured by benchmarks/replica_memory.py.
    """

    __slots__ = ("_brokers", "_by_broker", "_count")

    def __init__(self) -> None:
        self._by_broker: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, tuple[str, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> Mapping[str, tuple[str, ...]]:
        """Topic → sorted names of the brokers that have an entry."""
        return self._brokers

    @property
    def brokers(self) -> Mapping[str, Mapping[str, QueueData]]:
        return self._by_broker

    def of_broker(self, broker: str) -> Mapping[str, QueueData]:
        return self._by_broker.get(broker, _NO_QUEUES)

    def of_topic(self, topic: str) -> dict[str, QueueData]:
        """By broker name, sorted."""
        by_broker = self._by_broker
        return {name: by_broker[name][topic] for name in self._brokers.get(topic, ())}

    def work_out(
        self, broker: str, wanted: Mapping[str, QueueData | None], updates: Updates, *, complete: bool
    ) -> Iterator[None]:
        """Entries of one broker to put or (None) to remove. With `complete`, entries that are not in `wanted` are
        removed.
        """
        entries = self.of_broker(broker)
        update = _BrokerUpdate(intern(broker), entries, self._brokers, updates)
        if complete:
            for topics in parts_of(entries, STEP_TOPICS):
                update.remove([topic for topic in topics if topic not in wanted])
                if updates.ends_step(len(topics)):
                    yield
        for items in parts_of(wanted.items(), STEP_TOPICS):
            update.remove([topic for topic, queue in items if queue is None and topic in entries])
            update.put(items)
            if updates.ends_step(len(items)):
                yield
        updates.queues.append((intern(broker), update.puts, update.removed))

    def put_in_place(self, updates: Updates) -> None:
        for broker, puts, removed in updates.queues:
            entries = self._by_broker.setdefault(broker, {})
            self._count -= len(entries)
            entries.update(puts)
            if len(entries) == len(removed):
                del self._by_broker[broker]
                continue
            for topic in removed:
                del entries[topic]
            self._count += len(entries)
        self._brokers.update(updates.brokers)
        for topic in updates.topics_gone:
            del self._brokers[topic]

    def facts(self) -> Iterator[int]:
        for broker, queues in self._by_broker.items():
            fact = queue_hasher(broker)
            for topic, queue in queues.items():
                yield fact((topic,), queue)


class _BrokerUpdate:
    """Works out the entries of one broker and its part of the index by topic."""

    __slots__ = ("_added", "_broker", "_entries", "_fact", "_index", "_removed", "_updates", "puts", "removed")

    def __init__(
        self, broker: str, entries: Mapping[str, QueueData], index: Mapping[str, tuple[str, ...]], updates: Updates
    ) -> None:
        self.puts: dict[str, QueueData] = {}
        self.removed: list[str] = []
        self._broker = broker
        self._entries = entries
        self._index = index
        self._updates = updates
        self._fact = queue_hasher(broker)
        # The tuple that replaces another one, by the other's id, and the other, so that no new object gets its id.
        self._added: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._removed: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def put(self, items: Iterable[tuple[str, QueueData | None]]) -> None:
        """Entries that are equal to the known ones, or None, are skipped."""
        entries, puts, added = self._entries, self.puts, list[str]()
        by_value: dict[int, tuple[QueueData, list[str]]] = {}
        last: QueueData | None = None
        for name, queue in items:
            known = entries.get(name)
            if queue is None or known is queue or (known is not None and known == queue):
                continue
            if queue is not last:
                value, last = _shared(queue)[0], queue
                topics = by_value.setdefault(id(value), (value, []))[1]
            topic = intern(name)  # one object for each name
            topics.append(topic)
            puts[topic] = value
            if known is None:
                added.append(topic)
            else:
                self._updates.facts -= self._fact((topic,), known)
        self._add_to_index(added)
        for value, topics in by_value.values():
            self._updates.facts += self._fact(topics, value)
            self._updates.changed.update(topics)

    def remove(self, topics: list[str]) -> None:
        self.removed += topics
        self._remove_from_index(topics)
        self._updates.facts -= sum(self._fact((topic,), self._entries[topic]) for topic in topics)
        self._updates.changed.update(topics)

    def _add_to_index(self, topics: list[str]) -> None:
        brokers, gone, known = self._updates.brokers, self._updates.topics_gone, self._added
        last: tuple[str, ...] | None = None
        for topic, indexed in zip(topics, map(self._index.get, topics), strict=True):
            before = brokers.get(topic) or (() if indexed is None or topic in gone else indexed)
            if before is not last:
                if id(before) not in known:
                    at = bisect_left(before, self._broker)
                    known[id(before)] = before, (*before[:at], self._broker, *before[at:])
                last, after = known[id(before)]
            brokers[topic] = after
        gone.difference_update(topics)

    def _remove_from_index(self, topics: list[str]) -> None:
        brokers, gone, known = self._updates.brokers, self._updates.topics_gone, self._removed
        for topic in topics:
            before = brokers.get(topic) or self._index[topic]
            if id(before) not in known:
                at = bisect_left(before, self._broker)
                known[id(before)] = before, (*before[:at], *before[at + 1 :])
            if after := known[id(before)][1]:
                brokers[topic] = after
            else:
                brokers.pop(topic, None)
                gone.add(topic)


class Table:
    """Groups, queues, clusters, instances, mappings, key-values, settings and identities, with indexes and a digest."""

    def __init__(self) -> None:
        self._digest = Digest()
        self._queues = Queues()
        self._groups: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._clusters_of: dict[str, frozenset[str]] = {}
        self._mappings: dict[str, dict[str, TopicMapping]] = {}
        self._mappings_by_topic: dict[str, dict[str, TopicMapping]] = {}
        self._instances: dict[str, Instance] = {}
        self._kv: dict[str, dict[str, str]] = {}
        # What callers may read. Changed only by the methods below.
        self.groups: Mapping[str, BrokerGroup] = self._groups
        self.clusters: Mapping[str, set[str]] = self._clusters
        """Cluster → broker names listed under it. A name may be listed under several, and may have no group."""
        self.instances: Mapping[str, Instance] = self._instances
        """By instance name (`cluster/address`)."""
        self.topics: Collection[str] = self._queues.topics.keys()
        """Every topic with a queue entry."""
        self.kv: Mapping[str, Mapping[str, str]] = self._kv
        self.settings: Mapping[str, str] = {}
        self.identities: Mapping[str, str] = {}
        """Packed; a new object with every change."""

    # -- reading

    @property
    def digest(self) -> str:
        return self._digest.text

    @property
    def entry_count(self) -> int:
        """Number of queue entries."""
        return len(self._queues)

    def queues_of(self, broker: str) -> Mapping[str, QueueData]:
        return self._queues.of_broker(broker)

    def brokers_of(self, topic: str) -> Mapping[str, QueueData]:
        return self._queues.of_topic(topic)

    def mappings_of_broker(self, broker: str) -> Mapping[str, TopicMapping]:
        return self._mappings.get(broker, {})

    def mappings_of_topic(self, topic: str) -> Mapping[str, TopicMapping]:
        return self._mappings_by_topic.get(topic, {})

    def filters_at(self, cluster: str, address: str) -> tuple[str, ...]:
        instance = self._instances.get(join_instance_name(cluster, address))
        return instance.filters if instance else ()

    def names(self) -> set[str]:
        """Every broker name that anything in the table refers to."""
        return {*self._groups, *self._clusters_of, *self._queues.brokers, *self._mappings}

    def image_of(self, broker: str, topics: Iterable[str] | None = None) -> GroupImage:
        """The image that `apply_group` would take to create this state: of `topics` only, or (None) of all."""
        queues = self._queues.of_broker(broker)
        return GroupImage(
            group=self._groups.get(broker),
            clusters=self._clusters_of.get(broker, frozenset()),
            queues=dict(queues) if topics is None else {topic: queues.get(topic) for topic in topics},
            all_queues=topics is None,
            mappings=dict(self._mappings.get(broker, {})),
        )

    # -- applying what was read from the store

    def work_out(self, images: Mapping[str, GroupImage]) -> Generator[None, None, Updates]:
        """What these images of groups, by broker name, change. The table stays as it is."""
        updates = Updates()
        for broker, image in images.items():
            yield from self._queues.work_out(broker, image.queues, updates, complete=image.all_queues)
            yield from self._work_out_mappings(broker, image, updates)
            if not looks_alike(self._groups.get(broker), image.group):
                for topics in parts_of(self._queues.of_broker(broker), STEP_TOPICS):
                    updates.changed.update(topics)
                    if updates.ends_step(len(topics) // 10):
                        yield
            updates.groups.append((broker, image))
            if updates.ends_step(TOPICS_PER_OBJECT):
                yield
        return updates

    def put_in_place(self, updates: Updates) -> set[str]:
        self._queues.put_in_place(updates)
        self._put_mappings_in_place(updates)
        for broker, image in updates.groups:
            self._apply_clusters(broker, image.clusters)
            self._exchange_group(broker, image.group)
        self._digest.add_all([updates.facts])
        return updates.changed

    def apply_group(self, broker: str, image: GroupImage) -> set[str]:
        return self.put_in_place(finish(self.work_out({broker: image})))

    def apply_instance(self, instance_name: str, instance: Instance | None) -> set[str]:
        before = self._instances.get(instance_name)
        if before == instance:
            return set()
        self._digest.remove_all(instance_facts(before))
        self._digest.add_all(instance_facts(instance))
        if instance is None:
            del self._instances[instance_name]
        else:
            self._instances[instance_name] = instance
        either = instance or before
        if either is None or (before.filters if before else ()) == (instance.filters if instance else ()):
            return set()
        return self._topics_at(either.cluster, either.address)

    def apply_kv(self, namespace: str, values: Mapping[str, str] | None) -> set[str]:
        before = self._kv.get(namespace)
        if before == values:
            return set()
        self._digest.remove_all(kv_facts(namespace, None if before is None else before.items()))
        self._digest.add_all(kv_facts(namespace, None if values is None else values.items()))
        if values is None:
            del self._kv[namespace]
        else:
            self._kv[namespace] = dict(values)
        if namespace != ORDER_TOPIC_NAMESPACE:
            return set()
        return keys_that_differ(before or {}, values or {})

    def apply_settings(self, settings: Mapping[str, str]) -> bool:
        """Whether something changed. Which routes a setting concerns is known to the replica, not to the table."""
        if settings == self.settings:
            return False
        self._digest.remove_all(setting_fact(*item) for item in self.settings.items())
        self._digest.add_all(setting_fact(*item) for item in settings.items())
        self.settings = dict(settings)
        return True

    def apply_identities(self, identities: Mapping[str, str]) -> None:
        if identities == self.identities:
            return
        self._digest.remove_all(identity_fact(*item) for item in self.identities.items())
        self._digest.add_all(identity_fact(*item) for item in identities.items())
        self.identities = dict(identities)

    def compute_digest(self) -> str:
        """Computes from the facts alone what `digest` has to be."""
        fresh = Digest()
        fresh.add_all(self._facts())
        return fresh.text

    # -- parts

    def _facts(self) -> Iterator[int]:
        return chain(
            chain.from_iterable(map(group_facts, self._groups.values())),
            chain.from_iterable(membership_facts(name, found) for name, found in self._clusters_of.items()),
            self._queues.facts(),
            (
                mapping_fact(broker, topic, mapping)
                for broker, mappings in self._mappings.items()
                for topic, mapping in mappings.items()
            ),
            chain.from_iterable(map(instance_facts, self._instances.values())),
            chain.from_iterable(kv_facts(namespace, values.items()) for namespace, values in self._kv.items()),
            (setting_fact(*item) for item in self.settings.items()),
            (identity_fact(*item) for item in self.identities.items()),
        )

    def _exchange_group(self, broker: str, group: BrokerGroup | None) -> None:
        before = self._groups.get(broker)
        if group is None:
            self._groups.pop(broker, None)
        else:
            self._groups[intern(broker)] = group
        if not looks_alike(before, group):
            self._digest.remove_all(group_facts(before))
            self._digest.add_all(group_facts(group))

    def _apply_clusters(self, broker: str, clusters: frozenset[str]) -> None:
        before = self._clusters_of.get(broker, frozenset())
        if before == clusters:
            return
        self._digest.remove_all(membership_facts(broker, before - clusters))
        self._digest.add_all(membership_facts(broker, clusters - before))
        for cluster in before - clusters:
            self._clusters[cluster].discard(broker)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for cluster in clusters - before:
            self._clusters.setdefault(intern(cluster), set()).add(intern(broker))
        if clusters:
            self._clusters_of[intern(broker)] = clusters
        else:
            del self._clusters_of[broker]

    def _work_out_mappings(self, broker: str, image: GroupImage, updates: Updates) -> Iterator[None]:
        """Every image has all mappings of its broker."""
        entries = self._mappings.get(broker, {})
        puts: dict[str, TopicMapping] = {}
        removed = [topic for topic in entries if topic not in image.mappings]
        for topic, mapping in image.mappings.items():
            before = entries.get(topic)
            if before is None or before != mapping:
                puts[intern(topic)] = mapping
                updates.facts += mapping_fact(broker, topic, mapping)
                if updates.ends_step(TOPICS_PER_OBJECT):
                    yield
        for topic in chain(removed, (topic for topic in puts if topic in entries)):
            updates.facts -= mapping_fact(broker, topic, entries[topic])
            if updates.ends_step(TOPICS_PER_OBJECT):
                yield
        if puts or removed:
            updates.mappings.append((broker, puts, removed))
            updates.changed.update(puts, removed)

    def _put_mappings_in_place(self, updates: Updates) -> None:
        for broker, puts, removed in updates.mappings:
            entries = self._mappings.setdefault(broker, {})
            entries.update(puts)
            for topic, mapping in puts.items():
                self._mappings_by_topic.setdefault(topic, {})[broker] = mapping
            for topic in removed:
                del entries[topic]
                del self._mappings_by_topic[topic][broker]
                if not self._mappings_by_topic[topic]:
                    del self._mappings_by_topic[topic]
            if not entries:
                del self._mappings[broker]

    def _topics_at(self, cluster: str, address: str) -> set[str]:
        """Topics of every group of the cluster that has this address. Filters are looked up by cluster and address."""
        topics: set[str] = set()
        for name, group in self._groups.items():
            if group.cluster == cluster and address in group.addresses.values():
                topics.update(self._queues.of_broker(name))
        return topics


def looks_alike(one: BrokerGroup | None, other: BrokerGroup | None) -> bool:
    """Equal except for the revision, which no answer shows."""
    if one is None or other is None:
        return one is other
    return bool(_SHOWN(one) == _SHOWN(other))


def keys_that_differ(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}
