"""Server-sent events as bytes (HTML standard, section 9.2).

All open watches of a worker: how many there may be, and how they are told to end.

Which routes a stretch of the history touched: what a watcher that comes back has to hear.

Invariant: a topic whose route may differ between the version the watcher saw last and the newest one is
named at least once. Naming one too many is harmless, since an event carries the route as it is now. One
entry can hide topics: a removed group took its queue data along without naming it. Then the history before
says which topics those were; where it does not reach back far enough, the answer is "cannot say"
(`GapError`), never a guess.

One watch, as a stream of bytes: what it missed, then what happens, until somebody ends it.

Invariant: the subscription stands before anything is read, and what is read reaches up to the version of
that instant; so between what was missed and what happens there is no gap. Told twice is harmless: an event
carries the route as it is now.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from routebook.errors import NotFoundError, NotReadyError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.problems import Problem
from routebook.model.topic import ORDER_TOPIC_NAMESPACE
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import RouteEvent, Subscription
from routebook.store.history import BASELINE_KINDS, Change

KEEP_ALIVE: Final = b": still here\n\n"
_EVENT_ID: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,19})")


class EventId(NamedTuple):
    """The id of an entry of the change history; its text is what a client sends back."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"


def parse_event_id(text: str) -> EventId | None:
    found = _EVENT_ID.fullmatch(text.strip())
    return EventId(int(found[1]), int(found[2])) if found else None


def event(name: str, data: Any, event_id: EventId | None = None) -> bytes:
    """JSON has no line feeds of its own, so one data line holds it."""
    lines = [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    if event_id is not None:
        lines.append(f"id: {event_id}")
    return ("\n".join(lines) + "\n\n").encode()


def route_event(happened: RouteEvent, route: bytes | None) -> bytes:
    """The route is JSON already: it is set in, not decoded and encoded again.

    Of several events of one version only the last has an id: whoever goes on behind an id has missed nothing.
    """
    head = "event: route\n"
    if happened.last:
        head += f"id: {EventId(happened.ms, happened.version)}\n"
    data = f'data: {{"topic":{json.dumps(happened.topic)},"version":{happened.version},"route":'
    return (head + data).encode() + (route if route is not None else b"null") + b"}\n\n"


AT_MOST: Final = 1000
"""A watch holds a connection, a queue of events and up to 64 KiB of unsent bytes: 100 MB at the very
worst.
"""


class Watchers:
    def __init__(self, metrics: Metrics, *, at_most: int = AT_MOST) -> None:
        self.stopping = asyncio.Event()
        self._metrics = metrics
        self._at_most = at_most
        self._open = 0

    def check_room(self) -> None:
        if self.stopping.is_set():
            raise Problem(problems.BUSY, "This worker is about to stop.", advice="Connect again.")
        if self._open >= self._at_most:
            raise Problem(
                problems.BUSY,
                f"This worker has {self._open} watches, which is all it takes.",
                advice="Ask another worker, or close watches that nobody reads.",
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._open += 1
        self._metrics.watcher_added()
        try:
            yield
        finally:
            self._open -= 1
            self._metrics.watcher_removed()


ReadChanges = Callable[[int, int], Awaitable[list[Change]]]
"""(after this version, so many at most), oldest first."""

PAGE: Final = 500
LOOK_BACK: Final = 20_000
"""Entries read, at most, to learn what a removed group had; some tenths of a second."""

ONE_BY_ONE: Final = 100

_OF_A_GROUP: Final = frozenset(
    {"broker-registered", "broker-changed", "broker-removed", "group-changed", "write-permission"}
)
_KV: Final = frozenset({"kv-put", "kv-deleted"})


class GapError(Exception):
    """The history does not hold what would be needed."""


class PendingEvents:
    """What is to be told, in the order of versions. One by one while it is little, else only the newest of each
    topic: an event carries the route as it is now, so all before it would say the same.
    """

    def __init__(self) -> None:
        self._told: list[tuple[EventId, str]] = []
        self._limit = ONE_BY_ONE

    def add(self, topic: str, event_id: EventId) -> None:
        self._told.append((event_id, topic))
        if len(self._told) > self._limit:
            newest = {topic: event_id for event_id, topic in self._told}
            self._told = [(event_id, topic) for topic, event_id in newest.items()]
            self._limit = max(ONE_BY_ONE, 2 * len(self._told))

    def events(self) -> Iterator[RouteEvent]:
        told = sorted(self._told)
        for number, (event_id, topic) in enumerate(told, 1):
            is_last = number == len(told) or told[number][0] != event_id
            yield RouteEvent(topic, *event_id, last=is_last)


class Replay:
    def __init__(
        self,
        read_changes: ReadChanges,
        *,
        topics_of: Callable[[str], Collection[str]],
        all_topics: Callable[[], Collection[str]],
        topic: str | None,
    ) -> None:
        self._read_changes = read_changes
        self._topics_of = topics_of
        self._all_topics = all_topics
        self._topic = topic

    async def between(self, seen: EventId, upto: int) -> AsyncIterator[RouteEvent]:
        """Every route that may have changed after `seen`, up to version `upto`."""
        found = await self._read_changes(seen.version - 1, 1)
        if not found or EventId(found[0].ms, found[0].version) != seen:
            raise GapError(f"entry {seen} is not in the history")
        removed = await self._topics_of_removed(seen, upto)
        told = PendingEvents()
        async for change in self._after(seen.version, upto):
            for topic in self._touched(change, removed):
                told.add(topic, EventId(change.ms, change.version))
        for event in told.events():
            yield event

    async def _after(self, version: int, upto: int) -> AsyncIterator[Change]:
        """Not beyond `upto`: of a later change this worker has not seen the effect."""
        while version < upto:
            found = await self._read_changes(version, min(PAGE, upto - version))
            if not found or found[0].version != version + 1:
                raise GapError(f"entries after version {version} were trimmed")
            for change in found:
                yield change
            version = found[-1].version

    def _touched(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        if change.kind in BASELINE_KINDS:
            return ()
        if self._topic is not None:
            return (self._topic,) if self._may_touch(change, self._topic) else ()
        return self._all_touched(change, removed)

    def _may_touch(self, change: Change, topic: str) -> bool:
        if change.kind in _OF_A_GROUP:
            # Whether the topic was on that broker *then* is not known; a superfluous event is cheaper than
            # asking.
            return True
        return topic in self._all_touched(change, {})

    def _all_touched(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        named = named_topics(change)
        if change.kind in _OF_A_GROUP:
            broker = str(change.fields.get("broker", ""))
            return named | set(self._topics_of(broker)) | removed.get(broker, set())
        if change.kind in _KV:
            is_order = change.fields.get("namespace") == ORDER_TOPIC_NAMESPACE
            return {str(change.fields.get("key"))} if is_order else ()
        if change.kind == "settings-changed":
            return set(self._all_topics())
        return named

    async def _topics_of_removed(self, seen: EventId, upto: int) -> dict[str, set[str]]:
        """For a watch of all topics: what the groups had that the stretch removed."""
        if self._topic is not None:
            return {}
        found = [removed_group(change) async for change in self._after(seen.version, upto)]
        brokers = {broker for broker in found if broker is not None}
        return await self._look_back(brokers, seen, upto) if brokers else {}

    async def _look_back(self, brokers: set[str], seen: EventId, upto: int) -> dict[str, set[str]]:
        start = max(0, seen.version - LOOK_BACK)
        topics: dict[str, set[str]] = {broker: set() for broker in brokers}
        whole = dict.fromkeys(brokers, start == 0)
        async for change in self._after(start, upto):
            broker = str(change.fields.get("broker", ""))
            if broker not in brokers:
                continue
            topics[broker] |= named_topics(change)
            if removed_group(change) is None:
                continue
            if change.version <= seen.version:
                # Before the stretch: a fresh start, from which everything it had since is known.
                topics[broker], whole[broker] = set(), True
            elif not whole[broker]:
                raise GapError(f"what {broker!r} had is not in the history any more")
        return topics


def named_topics(change: Change) -> set[str]:
    return {str(item["t"]) for item in change.fields.get("queues") or ()}


def removed_group(change: Change) -> str | None:
    return str(change.fields["broker"]) if change.fields.get("group_removed") else None


KEEP_ALIVE_SECONDS: Final = 10.0
"""Below the idle timeouts of common proxies (nginx: 60 s)."""

_OPENING: Final = b"retry: 1000\n\n"


@dataclass(frozen=True, slots=True)
class WatchRequest:
    topic: str | None
    resumes: bool
    """The client says that it has been here, even if what it says makes no sense."""
    last_seen: EventId | None = None


class Watch:
    def __init__(
        self,
        registry: Registry,
        watchers: Watchers,
        watched: WatchRequest,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._registry = registry
        self._watchers = watchers
        self._wanted = watched
        self._keep_alive_seconds = keep_alive_seconds
        self._history = ""

    async def stream(self) -> AsyncIterator[bytes]:
        with self._watchers.watching(), self._registry.replica.subscriptions.add(self._wanted.topic) as subscription:
            self._history, upto = self._registry.history, self._registry.version
            yield _OPENING
            async for part in self._first(upto):
                yield part
            async for part in self._live(subscription):
                yield part

    async def _first(self, upto: int) -> AsyncIterator[bytes]:
        if not self._wanted.resumes:
            route = self._current()
            # A topic that is not there yet is told about when it comes.
            if route is not None and not route.endswith(b":null}\n\n"):
                yield route
            return
        try:
            async for part in self._missed(upto):
                yield part
        except (GapError, RoutebookError):
            async for part in self._reset():
                yield part

    async def _missed(self, upto: int) -> AsyncIterator[bytes]:
        seen = self._wanted.last_seen
        if seen is None:
            raise GapError("the id is none of ours")
        if seen.version > upto:
            # Another worker was ahead of this one.
            await self._registry.wait_for_version(seen.version)
            upto = self._registry.version
        registry = self._registry
        replay = Replay(
            self._registry.changes,
            # The view may be another one after each read.
            topics_of=lambda broker: registry.view.queues_of(broker),  # noqa: PLW0108
            all_topics=lambda: registry.view.topics,
            topic=self._wanted.topic,
        )
        async for happened in replay.between(seen, upto):
            yield self._event(happened)

    async def _live(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """Ends when the worker stops, or when this watcher is too slow: it comes back with
        `Last-Event-ID`.
        """
        stopping = asyncio.ensure_future(self._watchers.stopping.wait())
        coming = asyncio.ensure_future(_next(subscription))
        try:
            while True:
                done, _ = await asyncio.wait(
                    (stopping, coming), timeout=self._keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping in done:
                    return
                if self._registry.history != self._history:
                    self._history = self._registry.history
                    async for part in self._reset():
                        yield part
                if coming not in done:
                    yield KEEP_ALIVE
                    continue
                happened = coming.result()
                if happened is None:
                    return
                coming = asyncio.ensure_future(_next(subscription))
                yield self._event(happened)
        finally:
            stopping.cancel()
            coming.cancel()

    async def _reset(self) -> AsyncIterator[bytes]:
        """What the watcher knows may be wrong in ways nobody can tell it: it asks anew. One topic is
        answered at once.
        """
        event_id = self._newest_id
        yield event("reset", {"version": self._registry.version, "history": self._registry.history}, event_id)
        route = self._current()
        if route is not None:
            yield route

    @property
    def _newest_id(self) -> EventId:
        """Of the newest change this worker has seen; `0-0` while there is none, which nobody can resume from."""
        replica = self._registry.replica
        return EventId(replica.position.ms, replica.version)

    def _current(self) -> bytes | None:
        if self._wanted.topic is None:
            return None
        return self._event(RouteEvent(self._wanted.topic, *self._newest_id))

    def _event(self, happened: RouteEvent) -> bytes:
        try:
            return route_event(happened, self._registry.find_route(happened.topic))
        except NotFoundError:
            return route_event(happened, None)
        except NotReadyError:
            # "No such topic" cannot be said now; to be told nothing would leave the watcher with the old
            # route for ever.
            return event("reset", {"version": happened.version, "history": self._registry.history})


async def _next(subscription: Subscription) -> RouteEvent | None:
    return await anext(aiter(subscription), None)
