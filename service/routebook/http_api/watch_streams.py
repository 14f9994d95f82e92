"""The watches of a worker: route changes as server-sent events (HTML standard, section 9.2).

- `Watchers` counts the open watches and ends them.
- `Replay` lists the routes that changed while a client was disconnected. Its invariant: each topic whose route may
  differ between the version the client saw last and the newest version is listed at least once. An additional topic
  does no harm, because an event carries the current route. One kind of entry does not name its topics: the removal of a
  group removes its queue data too. Earlier entries of the history then tell which topics those were. When the history
  does not reach back far enough, `Replay` raises `GapError` instead of guessing.
- `Watch` is one stream: first the missed changes, then new changes until the client or the worker ends it. Its
  invariant: the subscription is registered before anything is read, and the replay ends at the version of that moment,
  so no change lies between the replay and the live events. A duplicate does no harm either.
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
from routebook.listeners.peers import Peer
from routebook.model.broker import ORDER_TOPIC_NAMESPACE
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.replica.replica import RouteEvent, Subscription
from routebook.settings.live import LiveSettings
from routebook.store.history import BASELINE_KINDS, Change

KEEP_ALIVE: Final = b": keep-alive\n\n"
_EVENT_ID: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,19})")


class EventId(NamedTuple):
    """The id of an entry of the change history. Clients send its text back as `Last-Event-ID`."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"


def parse_event_id(text: str) -> EventId | None:
    found = _EVENT_ID.fullmatch(text.strip())
    return EventId(int(found[1]), int(found[2])) if found else None


def encode_event(name: str, data: Any, event_id: EventId | None = None) -> bytes:
    """The JSON text contains no line feeds, so it fits on one data line."""
    lines = [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    if event_id is not None:
        lines.append(f"id: {event_id}")
    return ("\n".join(lines) + "\n\n").encode()


def encode_route_event(event: RouteEvent, route: bytes | None) -> bytes:
    """The route is JSON already and is inserted as it is.

    Of several events of one version, only the last has an id, so a client that resumes after an id has missed nothing.
    """
    head = "event: route\n"
    if event.last:
        head += f"id: {EventId(event.ms, event.version)}\n"
    data = f'data: {{"topic":{json.dumps(event.topic)},"version":{event.version},"route":'
    return (head + data).encode() + (route if route is not None else b"null") + b"}\n\n"


class Watchers:
    def __init__(self, metrics: Metrics, live_settings: LiveSettings) -> None:
        self.stopping = asyncio.Event()
        self._metrics = metrics
        self._live_settings = live_settings
        self._open = 0

    @property
    def open(self) -> int:
        """Open watches, consoles included."""
        return self._open

    def check_room(self, peer: Peer) -> None:
        """`peer` is the address that asks for a watch."""
        if self.stopping.is_set():
            raise Problem(problems.BUSY, "This worker is stopping.", advice="Connect again.")
        settings = self._live_settings.current
        if self._open >= settings.max_watches:
            raise Problem(
                problems.BUSY,
                f"This worker has {self._open} open watches, its maximum (max_watches is {settings.max_watches}).",
                advice="Connect to another worker, or close watches that are not needed.",
            )
        limit = settings.max_watches_per_address
        if limit and peer.watches >= limit:
            raise Problem(
                problems.BUSY,
                f"This address has {peer.watches} open watches, its maximum (max_watches_per_address is {limit}).",
                advice="Close watches that are not needed, or raise max_watches_per_address.",
            )

    @contextmanager
    def watching(self, peer: Peer) -> Iterator[None]:
        self._open += 1
        peer.watches += 1
        self._metrics.watcher_added()
        try:
            yield
        finally:
            self._open -= 1
            peer.watches -= 1
            self._metrics.watcher_removed()


ReadChanges = Callable[[int, int], Awaitable[list[Change]]]
"""Called with (version, limit): at most `limit` entries after that version, oldest first."""

PAGE: Final = 500
"""Entries per call of the store."""

LOOK_BACK: Final = 20_000
"""Maximum number of earlier entries read to find the topics of a removed group; takes some tenths of a second."""

MAX_SINGLE_EVENTS: Final = 100
"""Up to this number of events, a replay sends each one; above it, only the newest of each topic."""

_GROUP_KINDS: Final = frozenset(
    {"broker-registered", "broker-changed", "broker-removed", "group-changed", "write-permission"}
)
_KV_KINDS: Final = frozenset({"kv-put", "kv-deleted"})


class GapError(Exception):
    """The history no longer contains the entries that a replay needs."""


class PendingEvents:
    """The events of a replay, in the order of versions.

    When there are many, only the newest event of each topic is kept: every event carries the current route, so the
    earlier ones would repeat it.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[EventId, str]] = []
        self._limit = MAX_SINGLE_EVENTS

    def add(self, topic: str, event_id: EventId) -> None:
        self._pending.append((event_id, topic))
        if len(self._pending) > self._limit:
            newest = {topic: event_id for event_id, topic in self._pending}
            self._pending = [(event_id, topic) for topic, event_id in newest.items()]
            self._limit = max(MAX_SINGLE_EVENTS, 2 * len(self._pending))

    def events(self) -> Iterator[RouteEvent]:
        pending = sorted(self._pending)
        for number, (event_id, topic) in enumerate(pending, 1):
            is_last = number == len(pending) or pending[number][0] != event_id
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
        pending = PendingEvents()
        async for change in self._changes_after(seen.version, upto):
            for topic in self._affected_topics(change, removed):
                pending.add(topic, EventId(change.ms, change.version))
        for event in pending.events():
            yield event

    async def _changes_after(self, version: int, upto: int) -> AsyncIterator[Change]:
        """Ends at `upto`, since this worker's table does not contain later changes yet."""
        while version < upto:
            found = await self._read_changes(version, min(PAGE, upto - version))
            if not found or found[0].version != version + 1:
                raise GapError(f"entries after version {version} were trimmed")
            for change in found:
                yield change
            version = found[-1].version

    def _affected_topics(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        if change.kind in BASELINE_KINDS:
            return ()
        if self._topic is not None:
            return (self._topic,) if self._may_affect(change, self._topic) else ()
        return self._all_affected_topics(change, removed)

    def _may_affect(self, change: Change, topic: str) -> bool:
        if change.kind in _GROUP_KINDS:
            # It is not known whether the broker had the topic at that time. An unnecessary event costs less than
            # finding out.
            return True
        return topic in self._all_affected_topics(change, {})

    def _all_affected_topics(self, change: Change, removed: dict[str, set[str]]) -> Collection[str]:
        named = named_topics(change)
        if change.kind in _GROUP_KINDS:
            broker = str(change.fields.get("broker", ""))
            return named | set(self._topics_of(broker)) | removed.get(broker, set())
        if change.kind in _KV_KINDS:
            is_order = change.fields.get("namespace") == ORDER_TOPIC_NAMESPACE
            return {str(change.fields.get("key"))} if is_order else ()
        if change.kind == "settings-changed":
            return set(self._all_topics())
        return named

    async def _topics_of_removed(self, seen: EventId, upto: int) -> dict[str, set[str]]:
        """For a watch of all topics: the topics of each group that was removed after `seen`."""
        if self._topic is not None:
            return {}
        found = [removed_group(change) async for change in self._changes_after(seen.version, upto)]
        brokers = {broker for broker in found if broker is not None}
        return await self._look_back(brokers, seen, upto) if brokers else {}

    async def _look_back(self, brokers: set[str], seen: EventId, upto: int) -> dict[str, set[str]]:
        start = max(0, seen.version - LOOK_BACK)
        topics: dict[str, set[str]] = {broker: set() for broker in brokers}
        is_complete = dict.fromkeys(brokers, start == 0)
        async for change in self._changes_after(start, upto):
            broker = str(change.fields.get("broker", ""))
            if broker not in brokers:
                continue
            topics[broker] |= named_topics(change)
            if removed_group(change) is None:
                continue
            if change.version <= seen.version:
                # Removed at or before `seen`. All topics that it got later are named in the entries that follow.
                topics[broker], is_complete[broker] = set(), True
            elif not is_complete[broker]:
                raise GapError(f"the topics of {broker!r} are no longer in the history")
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
    """The client sent a `Last-Event-ID`, valid or not."""
    last_seen: EventId | None = None


class Watch:
    def __init__(
        self,
        registry: Registry,
        watchers: Watchers,
        peer: Peer,
        request: WatchRequest,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._registry = registry
        self._watchers = watchers
        self._peer = peer
        self._wanted = request
        self._keep_alive_seconds = keep_alive_seconds
        self._history = ""

    async def stream(self) -> AsyncIterator[bytes]:
        with (
            self._watchers.watching(self._peer),
            self._registry.replica.subscriptions.add(self._wanted.topic) as subscription,
        ):
            self._history, upto = self._registry.replica.history, self._registry.replica.version
            yield _OPENING
            async for part in self._initial_events(upto):
                yield part
            async for part in self._live_events(subscription):
                yield part

    async def _initial_events(self, upto: int) -> AsyncIterator[bytes]:
        if not self._wanted.resumes:
            route = self._current_route()
            # When the topic does not exist yet, the first event is its creation.
            if route is not None and not route.endswith(b":null}\n\n"):
                yield route
            return
        try:
            async for part in self._missed_events(upto):
                yield part
        except (GapError, RoutebookError):
            async for part in self._reset():
                yield part

    async def _missed_events(self, upto: int) -> AsyncIterator[bytes]:
        seen = self._wanted.last_seen
        if seen is None:
            raise GapError("the event id is invalid")
        if seen.version > upto:
            # The client read from a worker that was ahead of this one.
            await self._registry.wait_for_version(seen.version)
            upto = self._registry.replica.version
        registry = self._registry
        replay = Replay(
            self._registry.changes,
            # The registry may replace its view between two reads.
            topics_of=lambda broker: registry.view.queues_of(broker),  # noqa: PLW0108
            all_topics=lambda: registry.view.topics,
            topic=self._wanted.topic,
        )
        async for event in replay.between(seen, upto):
            yield self._encode(event)

    async def _live_events(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """Ends when the worker stops, or when the client reads too slowly; it can resume with `Last-Event-ID`."""
        stopping = asyncio.ensure_future(self._watchers.stopping.wait())
        next_event = asyncio.ensure_future(_next(subscription))
        try:
            while True:
                done, _ = await asyncio.wait(
                    (stopping, next_event), timeout=self._keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping in done:
                    return
                if self._registry.replica.history != self._history:
                    self._history = self._registry.replica.history
                    async for part in self._reset():
                        yield part
                if next_event not in done:
                    yield KEEP_ALIVE
                    continue
                event = next_event.result()
                if event is None:
                    return
                next_event = asyncio.ensure_future(_next(subscription))
                yield self._encode(event)
        finally:
            stopping.cancel()
            next_event.cancel()

    async def _reset(self) -> AsyncIterator[bytes]:
        """The client's data may be wrong in ways that events cannot correct, so it must read again. For a watch of one
        topic, its route follows.
        """
        event_id = self._newest_id
        yield encode_event(
            "reset", {"version": self._registry.replica.version, "history": self._registry.replica.history}, event_id
        )
        route = self._current_route()
        if route is not None:
            yield route

    @property
    def _newest_id(self) -> EventId:
        """The id of the newest change that this worker has seen; `0-0`, which cannot be resumed from, without any."""
        replica = self._registry.replica
        return EventId(replica.position.ms, replica.version)

    def _current_route(self) -> bytes | None:
        if self._wanted.topic is None:
            return None
        return self._encode(RouteEvent(self._wanted.topic, *self._newest_id))

    def _encode(self, event: RouteEvent) -> bytes:
        try:
            return encode_route_event(event, self._registry.find_route(event.topic))
        except NotFoundError:
            return encode_route_event(event, None)
        except NotReadyError:
            # The worker cannot be sure that the topic does not exist, and without an event the client would keep the
            # old route.
            return encode_event("reset", {"version": event.version, "history": self._registry.replica.history})


async def _next(subscription: Subscription) -> RouteEvent | None:
    return await anext(aiter(subscription), None)
