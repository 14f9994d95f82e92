"""One watch, as a stream of bytes: what it missed, then what happens, until somebody ends it.

Invariant: the subscription stands before anything is read, and what is read reaches up to the version of
that instant; so between what was missed and what happens there is no gap. Told twice is harmless: an event
carries the route as it is now.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from routebook.errors import NotFoundError, NotReadyError, RoutebookError
from routebook.http_api import sse
from routebook.http_api.replay import GapError, Replay
from routebook.http_api.sse import EventId
from routebook.http_api.watchers import Watchers
from routebook.registry.registry import Registry
from routebook.replica.subscriptions import RouteEvent, Subscription

KEEP_ALIVE_SECONDS: Final = 10.0
"""Below the idle timeouts of common proxies (nginx: 60 s)."""

_OPENING: Final = b"retry: 1000\n\n"


@dataclass(frozen=True, slots=True)
class Wanted:
    topic: str | None
    resumes: bool
    """The client says that it has been here, even if what it says makes no sense."""
    last_seen: EventId | None = None


class Watch:
    def __init__(
        self,
        registry: Registry,
        watchers: Watchers,
        wanted: Wanted,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._registry = registry
        self._watchers = watchers
        self._wanted = wanted
        self._keep_alive_seconds = keep_alive_seconds
        self._history = ""

    async def stream(self) -> AsyncIterator[bytes]:
        with self._watchers.watching(), self._registry.subscribe(self._wanted.topic) as subscription:
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
                    yield sse.KEEP_ALIVE
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
        yield sse.event("reset", {"version": self._registry.version, "history": self._registry.history}, event_id)
        route = self._current()
        if route is not None:
            yield route

    @property
    def _newest_id(self) -> EventId:
        """Of the newest change this worker has seen; `0-0` while there is none, which nobody can resume from."""
        replica = self._registry.replica
        return EventId(replica.ms, replica.version)

    def _current(self) -> bytes | None:
        if self._wanted.topic is None:
            return None
        return self._event(RouteEvent(self._wanted.topic, *self._newest_id))

    def _event(self, happened: RouteEvent) -> bytes:
        try:
            return sse.route_event(happened, self._registry.find_route(happened.topic))
        except NotFoundError:
            return sse.route_event(happened, None)
        except NotReadyError:
            # "No such topic" cannot be said now; to be told nothing would leave the watcher with the old
            # route for ever.
            return sse.event("reset", {"version": happened.version, "history": self._registry.history})


async def _next(subscription: Subscription) -> RouteEvent | None:
    return await anext(aiter(subscription), None)
