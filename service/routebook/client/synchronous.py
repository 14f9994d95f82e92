"""The client for programs without asyncio. A registration sends its heartbeats from a thread."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from routebook.client.connection import BaseClient, BaseRegistration, Connecting, answer_of, options_of
from routebook.client.model import Change, NotAllowedError, Queues, RefusedError, Route, RouteEvent, UnreachableError
from routebook.client.requests import Answer, Pause, Request, Seat, SeenChanges, ServerEvent, Steps, search_params

_T = TypeVar("_T")


class Client(BaseClient):
    """Asks a service at one or several addresses (a list, or one text with commas). A client is for one thread."""

    _http_class = httpx.Client
    _http: httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- routes

    def lookup(self, topic: str, *, max_age_s: float | None = None) -> Route:
        """The route of a topic. If no address answers, it is the route that was read before, with `is_fallback` set.

        Raises NotFoundError if there is no such topic, and UnreachableError if no worker can tell.
        """
        return self._run(self._requests.lookup(topic, max_age_s))

    def watch(self, topic: str | None = None) -> Iterator[RouteEvent]:
        """The route of the topic (or of all topics) each time it changes, beginning with the route that it has.

        It does not end: after a lost connection it resumes at another address, without a gap or with a reset event.
        """
        for event, history in self._events("/v1/watch", {"topic": topic}):
            yield self._requests.route_event(event, history)

    # -- the history

    def changes(
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
    ) -> Iterator[Change]:
        """Who changed what, and which requests were refused, oldest first. `since` and `until` are versions, ids,
        times, or durations such as `10m`. With `follow` it does not end.
        """
        params = search_params(
            kinds, since=since, until=until, broker=broker, topic=topic, cluster=cluster, actor=actor
        )
        if follow:
            seen = SeenChanges()
            for event, _ in self._events("/v1/changes", {**params, "follow": "true"}):
                if change := seen.read(event):
                    yield change
            return
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = self._run(self._requests.changes({**params, "cursor": cursor or None}))
            for change in page:
                yield change

    # -- registrations

    def register(
        self, cluster: str, broker: str, address: str, topics: Mapping[str, Queues] | Iterable[str], **more: Any
    ) -> "Registration":
        """`with client.register(...)` registers the broker, sends its heartbeats, and unregisters it at the end.

        `more`: `broker_id` (0), `timeout_ms` (30,000), and further fields of the request, such as `zone`.
        """
        return Registration(self._requests, self._run, Seat.of(cluster, broker, address, topics, **more))

    # -- doing the steps

    def _run(self, steps: Steps[_T]) -> _T:
        sent: Answer | None = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration as end:
                result: _T = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                sent = None
            else:
                sent = self._ask(step)

    def _ask(self, request: Request) -> Answer | None:
        try:
            return answer_of(self._http.request(**options_of(request)))
        except httpx.TransportError:
            return None

    def _events(self, path: str, params: Mapping[str, Any]) -> Iterator[tuple[ServerEvent, str]]:
        """Events and the name of their history, over as many connections as it takes."""
        connecting = Connecting(self._requests, path, params)
        while True:
            try:
                with self._http.stream(**connecting.options()) as answer:
                    if answer.is_error:
                        answer.read()
                        connecting.refused(answer)
                    else:
                        history = connecting.connected(answer)
                        for line in answer.iter_lines():
                            if event := connecting.reader.read(line):
                                yield event, history
            except httpx.TransportError:
                pass
            time.sleep(connecting.pause_s())


class Registration(BaseRegistration):
    """A broker that stays registered as long as the block runs."""

    def __enter__(self) -> Self:
        self.result = self._run(self._requests.register(self._seat))
        self._ends = threading.Event()
        name = f"heartbeats of {self._seat.broker}"
        self._thread = threading.Thread(target=self._keep_alive, name=name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._run(self._requests.unregister(self._seat))

    def _keep_alive(self) -> None:
        while not self._ends.wait(self._seat.heartbeat_pause_s):
            try:
                self._run(self._requests.heartbeat(self._seat))
                self.last_error = None
            except (UnreachableError, NotAllowedError, RefusedError) as error:
                self.last_error = error
