"""One number for the whole table, equal on all workers that hold the same facts, in whatever order they
learnt them.

The digest is the sum, modulo 2^128, of one hash a fact: adding and taking away a fact costs one hash, and
order plays no part. A sum and not an exclusive-or, so that a fact added twice by mistake shows instead of
vanishing. No name or address holds a control character (`model.names`), so NUL separates; free text stands
last.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from routebook.model.broker import BrokerGroup, Instance
from routebook.model.topic import TopicMapping

_BYTES = 16
_MODULUS = 1 << 8 * _BYTES


def hash_fact(*parts: str) -> int:
    text = "\0".join(parts)
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest(), "big")


class Digest:
    """The running sum."""

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
    """Flags and seats. The revision is left out: it is bookkeeping of the store, not part of what the table
    says.
    """
    if group is None:
        return
    zone = "" if group.zone is None else f"={group.zone}"
    yield hash_fact("group", group.name, group.cluster, "1" if group.acting_master else "0", zone)
    for broker_id, address in group.addresses.items():
        yield hash_fact("seat", group.name, str(broker_id), address)


def membership_facts(broker: str, clusters: Iterable[str]) -> Iterator[int]:
    return (hash_fact("cluster", cluster, broker) for cluster in clusters)


def queue_hasher(broker: str) -> Callable[[str, bytes], int]:
    """Hashes topic and packed value. Of all facts only these come by the million: what they have in common is
    hashed once.
    """
    start = blake2b(f"queue\0{broker}\0".encode("utf-8", "surrogatepass"), digest_size=_BYTES).copy
    number = int.from_bytes

    def hash_queue(topic: str, packed: bytes) -> int:
        hashed = start()
        hashed.update(b"%b\0%b" % (topic.encode("utf-8", "surrogatepass"), packed))
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
    yield hash_fact("instance", instance.member, instance.broker, instance.incarnation, numbers, instance.ha_address)
    if instance.filters:
        yield hash_fact("filters", instance.member, json.dumps(instance.filters))


def kv_facts(namespace: str, values: Iterable[tuple[str, str]] | None) -> Iterator[int]:
    """The namespace is a fact of its own: it outlives its last key."""
    if values is None:
        return
    yield hash_fact("kv-namespace", namespace)
    for key, value in values:
        yield hash_fact("kv", namespace, key, value)


def setting_fact(key: str, value: str) -> int:
    return hash_fact("setting", key, value)
