"""The route table of one namespace in the memory of one worker: lookups are answered without a step to the store."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from routebook.errors import NotReadyError, NotSeenYetError
from routebook.model.broker import ORDER_TOPIC_NAMESPACE, TopicRoute
from routebook.protocol.answer_bodies import Dialect, encode_route
from routebook.replica.feed import Feed
from routebook.replica.routes import build_route
from routebook.replica.table import Table
from routebook.settings import LiveSettings, Settings
from routebook.store.history import Change
from routebook.store.namespace import Namespace

MAX_CACHE_BYTES: Final = 128 << 20
"""A route of 100 brokers has about 20 KB: 10,000 such routes would take 200 MB."""
MAX_COMPARED_BYTES: Final = 256 << 10
"""Up to this size, some 5 ms of work, routes are encoded again to see whether they really differ. A larger change is
published without comparing.
"""
MAX_QUEUED_EVENTS: Final = 1_000
MAX_QUEUED_EVENTS_OF_ALL: Final = 100_000
"""For a subscription to all routes: a change of a group with many topics is one event for each of them."""
VISIBLE_WITHIN_MS: Final = 5_000
"""The history brings a write within milliseconds, but loading the table again takes seconds."""


class RouteCache:
    """Encoded routes by topic, up to a total size. The oldest entry is evicted first: keeping track of use would cost
    more than the lookup itself.
    """

    __slots__ = ("_bodies", "_bytes", "_max_bytes", "get")

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._bodies: dict[str, bytes] = {}
        self.get: Callable[[str], bytes | None] = self._bodies.get
        """The dictionary's own method, because a function around it would be noticeable in a lookup."""
        self._bytes = 0
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def put(self, topic: str, body: bytes) -> None:
        self._drop(topic)
        self._bodies[topic] = body
        self._bytes += len(body)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._bodies)))

    def take_out(self, topics: Set[str]) -> dict[str, bytes]:
        """Removes the routes of these topics. Returns them, for comparison with the new ones."""
        former = {topic: self._bodies.pop(topic) for topic in self._bodies.keys() & topics}
        self._bytes -= sum(map(len, former.values()))
        return former

    def _drop(self, topic: str) -> bytes | None:
        body = self._bodies.pop(topic, None)
        if body is not None:
            self._bytes -= len(body)
        return body


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """The route of this topic has (probably) changed in that version."""

    topic: str
    ms: int
    version: int
    last: bool = True
    """No further event of this version follows. A reader can resume without a gap only after such an event."""


class Subscription:
    """An asynchronous iterator over route events, and a context manager that ends it. Bounded: a reader that does not
    keep up is ended, and `lagged` says so.
    """

    def __init__(self, owner: "Subscriptions", topic: str | None) -> None:
        self.topic = topic
        self.lagged = False
        self._owner = owner
        self._max_events = MAX_QUEUED_EVENTS if topic is not None else MAX_QUEUED_EVENTS_OF_ALL
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
        """No further events are queued; the iterator ends after those that are."""
        if not self._closed:
            self._closed = True
            self._owner.remove(self)
            self._events.put_nowait(None)

    def put(self, events: Iterable[RouteEvent]) -> None:
        for event in events:
            if self._events.qsize() >= self._max_events:
                self.lagged = True
                self.close()
                return
            self._events.put_nowait(event)


class Subscriptions:
    """All subscriptions of one replica."""

    def __init__(self) -> None:
        self._by_topic: dict[str | None, set[Subscription]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def add(self, topic: str | None = None) -> Subscription:
        """To changes of one route, or (None) of all, from now on."""
        subscription = Subscription(self, topic)
        self._by_topic.setdefault(topic, set()).add(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        others = self._by_topic[subscription.topic]
        others.discard(subscription)
        if not others:
            del self._by_topic[subscription.topic]

    def wanted(self, topics: Collection[str]) -> list[str]:
        """The topics among these that have a subscriber, sorted."""
        if None in self._by_topic:
            return sorted(topics)
        if len(topics) < len(self._by_topic):
            return sorted(topic for topic in topics if topic in self._by_topic)
        return sorted(topic for topic in self._by_topic if topic is not None and topic in topics)

    def publish(self, topics: Collection[str], ms: int, version: int) -> None:
        if not topics:
            return
        *others, last = topics
        events = [*(RouteEvent(topic, ms, version, last=False) for topic in others), RouteEvent(last, ms, version)]
        for subscription in tuple(self._by_topic.get(None, ())):
            subscription.put(events)
        for topic in topics:
            for subscription in tuple(self._by_topic.get(topic, ())):
                subscription.put([RouteEvent(topic, ms, version)])


ChangeListener = Callable[[Sequence[Change], Table], None]


class Replica(Feed):
    """The table of the feed with encoded routes, subscriptions and waiting. `run` fills it and keeps it current;
    everything else answers at once, or waits for what `run` brings.
    """

    def __init__(
        self, namespace: Namespace, live_settings: LiveSettings, *, max_cache_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        super().__init__(namespace, live_settings)
        self.cached_routes = RouteCache(max_cache_bytes)
        self.cached_plain_routes = RouteCache(max_cache_bytes // 4)
        self.subscriptions = Subscriptions()
        self.view_number = 0
        """Rises with each step in which the view changes, also when its version stays the same. Whatever was derived
        from the view is still right while this number is the same.
        """
        self._listeners: list[ChangeListener] = []
        self._route_settings = _route_settings(live_settings.current)
        self._applied_settings: dict[str, str] = {}
        self._changed = asyncio.Event()

    def listen(self, listener: ChangeListener) -> Callable[[], None]:
        """Calls `listener` with each batch of changes, and the table before they are applied. Returns a function that
        ends this.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        unsubscribe = self._live_settings.subscribe(self._settings_changed)
        try:
            await super().run()
        finally:
            unsubscribe()

    # -- routes

    def route_bytes(self, topic: str) -> bytes | None:
        """The route as standard JSON; None when the topic has none."""
        return self.cached_routes.get(topic) or self._encoded(topic, Dialect.STANDARD, self.cached_routes)

    def plain_route_bytes(self, topic: str) -> bytes | None:
        """The same for clients before 4.9.4, which expect integer keys without quotes."""
        return self.cached_plain_routes.get(topic) or self._encoded(topic, Dialect.PLAIN, self.cached_plain_routes)

    def route(self, topic: str) -> TopicRoute | None:
        acting, order = self._route_settings
        return build_route(self.view, topic, support_acting_master=acting, order_conf_enabled=order)

    def _encoded(self, topic: str, dialect: Dialect, cache: RouteCache) -> bytes | None:
        route = self.route(topic)
        if route is None:
            return None
        body = encode_route(route, dialect)
        cache.put(topic, body)
        return body

    # -- waiting

    async def wait_complete(self, timeout_ms: int) -> None:
        if not await self._wait(lambda: self.complete, timeout_ms):
            raise NotReadyError(
                f"The table was not loaded within {timeout_ms} ms.",
                advice="Is the store reachable? See the log, and `routebook doctor`.",
            )

    async def wait_for(self, version: int, timeout_ms: int) -> None:
        """Waits until this replica has applied that version of the history it follows."""
        if not await self._wait(lambda: self.version >= version, timeout_ms):
            raise NotSeenYetError(version, self.version)

    async def wait_verified(self, timeout_ms: int) -> int:
        """Waits until the table was compared with the store on the present connections: usually not at all, and some
        milliseconds after a reconnect. Returns their epoch.
        """
        await self._wait(lambda: self.verified_epoch is not None, timeout_ms)
        if (epoch := self.verified_epoch) is None:
            raise NotReadyError(
                "This worker has connected to the store again, and has not compared its table with it yet.",
                advice="Try again in a second.",
            )
        return epoch

    async def wait_for_another_history(self, history: str, timeout_ms: int) -> None:
        """A reply has shown that the store no longer follows this history."""
        self.doubt()
        if not await self._wait(lambda: self.history != history, timeout_ms):
            raise NotReadyError(
                "The store has lost its data and the table is not loaded again yet.", advice="Try again."
            )

    async def _wait(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # -- called by the feed

    def before_apply(self, changes: Sequence[Change]) -> None:
        for listener in tuple(self._listeners):
            listener(changes, self.table)

    def invalidate(self, topics: set[str]) -> None:
        self.view_number += 1
        self._take_out(topics)

    def publish(self, topics: set[str]) -> None:
        self.view_number += 1
        self._publish(topics, self._take_out(topics))
        if self.view.settings != self._applied_settings:
            self._applied_settings = dict(self.view.settings)
            self._live_settings.apply(self._applied_settings)
        self._wake()

    def verified(self) -> None:
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _take_out(self, topics: Set[str]) -> dict[str, bytes]:
        """Returns only the standard routes: if they are equal, the plain ones are, too."""
        self.cached_plain_routes.take_out(topics)
        return self.cached_routes.take_out(topics)

    def _publish(self, topics: Collection[str], former: dict[str, bytes]) -> None:
        if not self.subscriptions or not topics:
            return
        wanted = self.subscriptions.wanted(topics)
        if sum(len(former[topic]) for topic in wanted if topic in former) <= MAX_COMPARED_BYTES:
            wanted = [topic for topic in wanted if topic not in former or former[topic] != self.route_bytes(topic)]
        self.subscriptions.publish(wanted, self.position.ms, self.version)

    def _settings_changed(self, settings: Settings) -> None:
        """Two settings change routes. Such a change is published like a change of the table."""
        (acting_before, order_before), self._route_settings = self._route_settings, _route_settings(settings)
        acting, order = self._route_settings
        topics: set[str] = set()
        if acting != acting_before:
            topics |= {
                topic
                for name, group in self.view.groups.items()
                if group.acting_master
                for topic in self.view.queues_of(name)
            }
        if order != order_before:
            topics |= self.view.kv.get(ORDER_TOPIC_NAMESPACE, {}).keys()
        self._publish(topics, self._take_out(topics))


def _route_settings(settings: Settings) -> tuple[bool, bool]:
    return settings.support_acting_master, settings.order_message_enable


class ReadYourWrites:
    """Waits until this worker's table shows a write. Created before the write begins.

    Versions only rise within one history. An answer with a version below the one known before the write therefore comes
    from another history: the store has lost its data, and this worker has not noticed yet.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._history = replica.history
        self._version = replica.version

    async def wait(self, version: int, timeout_ms: int = VISIBLE_WITHIN_MS) -> int:
        """Returns `version`. Raises NotSeenYetError when it takes too long."""
        if version < self._version:
            await self._replica.wait_for_another_history(self._history, timeout_ms)
        await self._replica.wait_for(version, timeout_ms)
        return version
