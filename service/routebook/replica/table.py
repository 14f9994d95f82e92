"""The route table of one namespace in memory. It has no clock and does no input or output.

What was read from the store is applied as images; each is one consistent object (a broker group with some or all of its
queues, an instance, a key-value namespace). Every apply method returns the topics whose route may have changed, and
updates the digest of the table. Callers get live mappings, not copies: they may read them, but not keep them across an
`await`.

The digest is one number for the whole table, equal on all workers that hold the same facts, in whatever order they
were applied. It is the sum, modulo 2^128, of one hash per fact: adding or removing a fact costs one hash. It is a sum
and not an exclusive-or, so that a fact that was added twice by mistake shows. No name or address contains a control
character (`model.names`), so NUL separates the parts of a fact; free text comes last.
"""

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from sys import intern
from types import MappingProxyType

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, BrokerGroup, Instance, QueueData, TopicMapping
from routebook.model.names import join_instance_name
from routebook.store.reads import GroupImage

_BYTES = 16
_MODULUS = 1 << 8 * _BYTES


def hash_fact(*parts: str) -> int:
    text = "\0".join(parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest(), "big")


class Digest:
    """The running sum of the hashes of all facts."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0

    def add(self, hashed: int) -> None:
        self._sum = (self._sum + hashed) % _MODULUS

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


def queue_hasher(broker: str) -> Callable[[str, bytes], int]:
    """Returns a function that hashes topic and packed value. These are the only facts that can number in the millions,
    so their common beginning is hashed once.
    """
    start = blake2b(f"queue\0{broker}\0".encode("utf-8", "surrogatepass"), digest_size=_BYTES).copy
    number = int.from_bytes

    def hash_queue(topic: str, packed: bytes) -> int:
        hashed = start()
        hashed.update(topic.encode("utf-8", "surrogatepass") + b"\0" + packed)
        return number(hashed.digest(), "big")

    return hash_queue


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


class Queues:
    """All queue entries, indexed by broker and by topic.

    The only part of the table that grows to millions of entries, so it saves memory: values and names are shared
    objects, and the index by topic is a sorted list of broker names without the values. Measured by
    benchmarks/replica_memory.py.
    """

    __slots__ = ("_brokers", "_by_broker", "_count", "_digest")

    def __init__(self, digest: Digest) -> None:
        self._by_broker: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, list[str]] = {}
        self._digest = digest
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> Mapping[str, list[str]]:
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

    def update(self, broker: str, wanted: Mapping[str, QueueData | None], *, complete: bool) -> set[str]:
        """Puts or removes (None) entries of one broker. With `complete`, entries that are not in `wanted` are removed.
        Returns the topics that changed.
        """
        entries = self._by_broker.setdefault(intern(broker), {})
        changed = {topic for topic in entries if topic not in wanted} if complete else set()
        for topic, queue in wanted.items():
            known = entries.get(topic)
            if known is not queue and (known is None or known != queue):
                changed.add(topic)
        self._replace(intern(broker), entries, changed, wanted)
        if not entries:
            del self._by_broker[broker]
        return changed

    def _replace(
        self,
        broker: str,
        entries: dict[str, QueueData],
        topics: set[str],
        wanted: Mapping[str, QueueData | None],
    ) -> None:
        removed: list[int] = []
        added: list[int] = []
        fact = queue_hasher(broker)
        last_value: QueueData | None = None
        for topic in topics:
            before, after = entries.get(topic), wanted.get(topic)
            if before is not None:
                removed.append(fact(topic, _shared(before)[1]))
            if after is None:
                del entries[topic]
                self._remove_from_index(broker, topic)
                continue
            if after is not last_value:  # most topics of a broker have the same value
                value, packed = _shared(after)
                last_value = after
            added.append(fact(topic, packed))
            if before is None:
                topic = intern(topic)  # noqa: PLW2901 - one object for each name
                self._add_to_index(broker, topic)
            entries[topic] = value
        self._digest.remove_all(removed)
        self._digest.add_all(added)

    def _add_to_index(self, broker: str, topic: str) -> None:
        self._count += 1
        names = self._brokers.get(topic)
        if names is None:
            self._brokers[topic] = [broker]
        elif names[-1] < broker:
            names.append(broker)
        else:
            insort(names, broker)

    def _remove_from_index(self, broker: str, topic: str) -> None:
        self._count -= 1
        names = self._brokers[topic]
        del names[bisect_left(names, broker)]
        if not names:
            del self._brokers[topic]

    def facts(self) -> Iterator[int]:
        for broker, queues in self._by_broker.items():
            fact = queue_hasher(broker)
            for topic, queue in queues.items():
                yield fact(topic, queue.pack().encode())


class Table:
    """Groups, queues, clusters, instances, mappings, key-values, settings and identities, with indexes and a digest."""

    def __init__(self) -> None:
        self._digest = Digest()
        self._queues = Queues(self._digest)
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

    def apply_group(self, broker: str, image: GroupImage) -> set[str]:
        changed = self._queues.update(broker, image.queues, complete=image.all_queues)
        changed |= self._apply_mappings(broker, image)
        self._apply_clusters(broker, image.clusters)
        if self._exchange_group(broker, image.group):
            changed.update(self._queues.of_broker(broker))
        return changed

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
        old_filters = before.filters if before else ()
        new_filters = instance.filters if instance else ()
        either = instance or before
        if old_filters == new_filters or either is None:
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
        return _keys_that_differ(before or {}, values or {})

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

    def _exchange_group(self, broker: str, group: BrokerGroup | None) -> bool:
        before = self._groups.get(broker)
        if group is None:
            self._groups.pop(broker, None)
        else:
            self._groups[intern(broker)] = group
        if looks_alike(before, group):
            return False
        self._digest.remove_all(group_facts(before))
        self._digest.add_all(group_facts(group))
        return True

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

    def _apply_mappings(self, broker: str, image: GroupImage) -> set[str]:
        """Every image has all mappings of its broker, because they are few."""
        entries = self._mappings.get(broker, {})
        changed = {topic for topic, mapping in image.mappings.items() if entries.get(topic) != mapping}
        changed |= entries.keys() - image.mappings.keys()
        for topic in changed:
            self._exchange_mapping(broker, intern(topic), image.mappings.get(topic))
        return changed

    def _exchange_mapping(self, broker: str, topic: str, mapping: TopicMapping | None) -> None:
        for outer, key, inner in (
            (self._mappings, broker, topic),
            (self._mappings_by_topic, topic, broker),
        ):
            found = outer.setdefault(key, {})
            before = found.pop(inner, None)
            if mapping is not None:
                found[inner] = mapping
            if not found:
                del outer[key]
        if before is not None:
            self._digest.remove_all([mapping_fact(broker, topic, before)])
        if mapping is not None:
            self._digest.add_all([mapping_fact(broker, topic, mapping)])

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
    return (one.cluster, one.zone, one.acting_master, one.addresses) == (
        other.cluster,
        other.zone,
        other.acting_master,
        other.addresses,
    )


def changed_topics(old: Table, new: Table) -> Iterator[set[str]]:
    """Topics whose route may differ when `new` takes the place of `old`. In steps of one broker, so that a caller on
    the event loop can pause in between.
    """
    for broker in old.names() | new.names():
        yield _topics_changed_at(broker, old, new)
    yield _topics_with_other_filters(old, new) | _topics_with_other_filters(new, old)
    yield _keys_that_differ(old.kv.get(ORDER_TOPIC_NAMESPACE, {}), new.kv.get(ORDER_TOPIC_NAMESPACE, {}))


def _topics_changed_at(broker: str, old: Table, new: Table) -> set[str]:
    before, after = old.queues_of(broker), new.queues_of(broker)
    if not looks_alike(old.groups.get(broker), new.groups.get(broker)):
        return {*before, *after, *old.mappings_of_broker(broker), *new.mappings_of_broker(broker)}
    changed = set() if before == after else _keys_that_differ(before, after)
    return changed | _keys_that_differ(old.mappings_of_broker(broker), new.mappings_of_broker(broker))


def _keys_that_differ(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def _topics_with_other_filters(one: Table, other: Table) -> set[str]:
    """Topics of `one` at addresses whose filters are different in the other table."""
    addresses = {
        (instance.cluster, instance.address)
        for instance in one.instances.values()
        if instance.filters != other.filters_at(instance.cluster, instance.address)
    }
    if not addresses:
        return set()
    return {
        topic
        for name, group in one.groups.items()
        if any((group.cluster, address) in addresses for address in group.addresses.values())
        for topic in one.queues_of(name)
    }
