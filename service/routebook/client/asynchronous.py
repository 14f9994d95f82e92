"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from routebook.client.connection import BaseClient, BaseRegistration, Connecting, answer_of, options_of
from routebook.client.model import Change, NotAllowedError, Queues, RefusedError, Route, RouteEvent, UnreachableError
from routebook.client.requests import Answer, Pause, Request, Seat, SeenChanges, ServerEvent, Steps, search_params

_T = TypeVar("_T")


class AsyncClient(BaseClient):
    """Asks a service at one or several addresses (a list, or one text with commas)."""

    _http_class = httpx.AsyncClient
    _http: httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # -- routes

    async def lookup(self, topic: str, *, max_age_s: float | None = None) -> Route:
        """The route of a topic. If no address answers, it is the route that was read before, with `is_fallback` set.

        Raises NotFoundError if there is no such topic, and UnreachableError if no worker can tell.
        """
        return await self._run(self._requests.lookup(topic, max_age_s))

    async def watch(self, topic: str | None = None) -> AsyncIterator[RouteEvent]:
        """The route of the topic (or of all topics) each time it changes, beginning with the route that it has.

        It does not end: after a lost connection it resumes at another address, without a gap or with a reset event.
        """
        async for event, history in self._events("/v1/watch", {"topic": topic}):
            yield self._requests.route_event(event, history)

    # -- the history

    async def changes(
        self,
        *,
        since: str | int | None = None,
        until: str | int | None = None,
        kinds: Iterable[str] = (),
        broker: str | None = None,
        topic: str | None = None,
        cluster: str | None = None,
        actor: str | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Change]:
        """Who changed what, and which requests were refused, oldest first. `since` and `until` are versions, ids,
        times, or durations such as `10m`. With `follow` it does not end.
        """
        params = search_params(
            kinds, since=since, until=until, broker=broker, topic=topic, cluster=cluster, actor=actor
        )
        if follow:
            seen = SeenChanges()
            async for event, _ in self._events("/v1/changes", {**params, "follow": "true"}):
                if change := seen.read(event):
                    yield change
            return
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = await self._run(self._requests.changes({**params, "cursor": cursor or None}))
            for change in page:
                yield change

    # -- registrations

    def register(
        self, cluster: str, broker: str, address: str, topics: Mapping[str, Queues] | Iterable[str], **more: Any
    ) -> "AsyncRegistration":
        """`async with client.register(...)` registers the broker, sends its heartbeats, and unregisters it at the end.

        `more`: `broker_id` (0), `timeout_ms` (30,000), and further fields of the request, such as `zone`.
        """
        return AsyncRegistration(self._requests, self._run, Seat.of(cluster, broker, address, topics, **more))

    # -- doing the steps

    async def _run(self, steps: Steps[_T]) -> _T:
        sent: Answer | None = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration as end:
                result: _T = end.value
                return result
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                sent = None
            else:
                sent = await self._ask(step)

    async def _ask(self, request: Request) -> Answer | None:
        try:
            return answer_of(await self._http.request(**options_of(request)))
        except httpx.TransportError:
            return None

    async def _events(self, path: str, params: Mapping[str, Any]) -> AsyncIterator[tuple[ServerEvent, str]]:
        """Events and the name of their history, over as many connections as it takes."""
        connecting = Connecting(self._requests, path, params)
        while True:
            try:
                async with self._http.stream(**connecting.options()) as answer:
                    if answer.is_error:
                        await answer.aread()
                        connecting.refused(answer)
                    else:
                        history = connecting.connected(answer)
                        async for line in answer.aiter_lines():
                            if event := connecting.reader.read(line):
                                yield event, history
            except httpx.TransportError:
                pass
            await asyncio.sleep(connecting.pause_s())


class AsyncRegistration(BaseRegistration):
    """A broker that stays registered as long as the block runs."""

    async def __aenter__(self) -> Self:
        self.result = await self._run(self._requests.register(self._seat))
        self._task = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._run(self._requests.unregister(self._seat))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._seat.heartbeat_pause_s)
            try:
                await self._run(self._requests.heartbeat(self._seat))
                self.last_error = None
            except (UnreachableError, NotAllowedError, RefusedError) as error:
                self.last_error = error
