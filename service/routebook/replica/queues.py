"""Queue entries by broker and by topic. The one part of the table that grows to millions, so memory is
counted here: values and names are shared, and the view by topic is a sorted list of broker names without a
copy of the values. Measured by benchmarks/replica_memory.py.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from functools import lru_cache
from sys import intern
from types import MappingProxyType

from routebook.model.topic import QueueData
from routebook.replica.digest import Digest, queue_hasher

_DISTINCT_VALUES = 16_384
"""A fleet has some dozens of distinct queue values; the bound only keeps a hostile one from growing the
memory.
"""

_NOTHING: Mapping[str, QueueData] = MappingProxyType({})


@lru_cache(maxsize=_DISTINCT_VALUES)
def _shared(queue: QueueData) -> tuple[QueueData, bytes]:
    """The one instance of this value, and what the digest takes of it."""
    return queue, queue.pack().encode()


class Queues:
    """Every queue entry, found from both sides."""

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
        """Topic → names of the brokers that have an entry, sorted."""
        return self._brokers

    @property
    def brokers(self) -> Mapping[str, Mapping[str, QueueData]]:
        return self._by_broker

    def of_broker(self, broker: str) -> Mapping[str, QueueData]:
        return self._by_broker.get(broker, _NOTHING)

    def of_topic(self, topic: str) -> dict[str, QueueData]:
        """By broker name, in the order of names."""
        by_broker = self._by_broker
        return {name: by_broker[name][topic] for name in self._brokers.get(topic, ())}

    def update(self, broker: str, wanted: Mapping[str, QueueData | None], *, complete: bool) -> set[str]:
        """Put or remove (None) entries of one broker; with `complete`, what is not named goes. Returns what
        changed.
        """
        mine = self._by_broker.setdefault(intern(broker), {})
        changed = {topic for topic in mine if topic not in wanted} if complete else set()
        for topic, queue in wanted.items():
            if mine.get(topic) != queue:
                changed.add(topic)
        self._exchange(intern(broker), mine, changed, wanted)
        if not mine:
            del self._by_broker[broker]
        return changed

    def _exchange(
        self,
        broker: str,
        mine: dict[str, QueueData],
        topics: set[str],
        wanted: Mapping[str, QueueData | None],
    ) -> None:
        gone: list[int] = []
        come: list[int] = []
        fact = queue_hasher(broker)
        lately: QueueData | None = None
        for topic in topics:
            before, after = mine.get(topic), wanted.get(topic)
            if before is not None:
                gone.append(fact(topic, _shared(before)[1]))
            if after is None:
                del mine[topic]
                self._forget(broker, topic)
                continue
            if after is not lately:  # most of a broker's topics have one and the same value
                value, packed = _shared(after)
                lately = after
            come.append(fact(topic, packed))
            if before is None:
                topic = intern(topic)  # noqa: PLW2901 the same name, kept once
                self._remember(broker, topic)
            mine[topic] = value
        self._digest.remove_all(gone)
        self._digest.add_all(come)

    def _remember(self, broker: str, topic: str) -> None:
        self._count += 1
        names = self._brokers.get(topic)
        if names is None:
            self._brokers[topic] = [broker]
        elif names[-1] < broker:
            names.append(broker)
        else:
            insort(names, broker)

    def _forget(self, broker: str, topic: str) -> None:
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
