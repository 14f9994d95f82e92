"""Who wants to know when a route changes. Bounded: a reader that does not keep up is told so and let go."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

QUEUE_LENGTH: Final = 1_000
QUEUE_LENGTH_OF_ALL: Final = 100_000
"""One change of a group with many topics is as many events, for those who want all."""


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """The route of this topic is (probably) another one since that version."""

    topic: str
    ms: int
    version: int
    last: bool = True
    """No more events of this version follow: only behind such a one may a reader resume without a gap."""


class Subscription:
    """An asynchronous iterator, and a context manager that ends it. `lagged` when it ended because nobody
    read.
    """

    def __init__(self, owner: "Subscriptions", topic: str | None) -> None:
        self.topic = topic
        self.lagged = False
        self._owner = owner
        self._length = QUEUE_LENGTH if topic is not None else QUEUE_LENGTH_OF_ALL
        self._events: asyncio.Queue[RouteEvent | None] = asyncio.Queue()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RouteEvent:
        event = None if self._closed and self._events.empty() else await self._events.get()
        if event is None:
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        """The iterator ends after what is waiting; once closed, nothing more comes."""
        if not self._closed:
            self._closed = True
            self._owner.remove(self)
            self._events.put_nowait(None)

    def put(self, events: Iterable[RouteEvent]) -> None:
        for event in events:
            if self._events.qsize() >= self._length:
                self.lagged = True
                self.close()
                return
            self._events.put_nowait(event)


class Subscriptions:
    """All of one replica."""

    def __init__(self) -> None:
        self._of_topic: dict[str | None, set[Subscription]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_topic.values()))

    def add(self, topic: str | None) -> Subscription:
        subscription = Subscription(self, topic)
        self._of_topic.setdefault(topic, set()).add(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        others = self._of_topic[subscription.topic]
        others.discard(subscription)
        if not others:
            del self._of_topic[subscription.topic]

    def wanted(self, topics: Collection[str]) -> list[str]:
        """Those of the topics that anybody wants to hear of, in their order."""
        if None in self._of_topic:
            return sorted(topics)
        if len(topics) < len(self._of_topic):
            return sorted(topic for topic in topics if topic in self._of_topic)
        return sorted(topic for topic in self._of_topic if topic is not None and topic in topics)

    def publish(self, topics: Collection[str], ms: int, version: int) -> None:
        if not topics:
            return
        *others, last = topics
        events = [*(RouteEvent(topic, ms, version, last=False) for topic in others), RouteEvent(last, ms, version)]
        for subscription in tuple(self._of_topic.get(None, ())):
            subscription.put(events)
        for topic in topics:
            for subscription in tuple(self._of_topic.get(topic, ())):
                subscription.put([RouteEvent(topic, ms, version)])
