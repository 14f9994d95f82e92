"""What both clients do, without the network: which request is sent to which address, and what follows from the answer.

Each operation is a generator. It yields a `Request` and is sent the `Answer` (or None if the address could not be
reached), or it yields a `Pause`. The two clients differ only in how they do these.
"""

import os
import random
import ssl
from collections import OrderedDict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from routebook.client.model import (
    Change,
    ClientError,
    NotAllowedError,
    NotFoundError,
    Queues,
    RefusedError,
    Route,
    RouteEvent,
    UnreachableError,
    decode,
    route_of,
)

DEFAULT_URL: Final = "http://127.0.0.1:8080"
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
KEEP_ALIVE_S: Final = 10.0
"""The service sends something over each stream at least this often."""
MAX_ROUTES: Final = 10_000
"""Routes kept by a client."""
_TEMPORARY: Final = frozenset({429, 500, 502, 503, 504})
"""Another attempt, or another worker, may succeed."""
_UNKNOWN_BROKER: Final = "unknown-broker"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str]
    params: Mapping[str, str | int | Sequence[str]] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


_T = TypeVar("_T")
Steps: TypeAlias = Generator[Request | Pause, Answer | None, _T]


@dataclass(frozen=True, slots=True)
class Seat:
    """A broker id of a group, and the registration that takes it."""

    cluster: str
    broker: str
    broker_id: int
    timeout_ms: int
    body: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        cluster: str,
        broker: str,
        address: str,
        topics: Mapping[str, Queues] | Iterable[str],
        *,
        broker_id: int = 0,
        timeout_ms: int = 30_000,
        **more: Any,
    ) -> Self:
        """Topics that are only named get the service's default queues.

        `more` are further fields of the request, such as `zone` or `data_version`.
        """
        counts = topics if isinstance(topics, Mapping) else dict.fromkeys(topics)
        named = {
            name: {}
            if one is None
            else {"read_queues": one.read, "write_queues": one.write, "perm": one.perm, "flags": one.flags}
            for name, one in counts.items()
        }
        body = {"address": address, "topics": named, "timeout_ms": timeout_ms, **more}
        return cls(cluster, broker, broker_id, timeout_ms, body)

    @property
    def path(self) -> str:
        return f"/v1/clusters/{_quoted(self.cluster)}/brokers/{_quoted(self.broker)}/{self.broker_id}"

    @property
    def heartbeat_pause_s(self) -> float:
        """Two heartbeats may be lost before the broker expires, as with RocketMQ's brokers (30 of 120 s)."""
        return min(self.timeout_ms / 4000, 30)


def search_params(kinds: Iterable[str], **others: str | int | None) -> dict[str, Any]:
    """The parameters of a request for changes."""
    return {"kind": [*kinds] or None, **others}


def tls_context(cacert: str, certificate: str | tuple[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cacert or None)
    if certificate:
        context.load_cert_chain(*([certificate] if isinstance(certificate, str) else certificate))
    return context


class Requests:
    """The addresses, the token, and the routes read before."""

    def __init__(self, urls: str | Iterable[str] | None, *, token: str | None, retries: int, cache_s: float) -> None:
        urls = os.environ.get("ROUTEBOOK_URL", DEFAULT_URL) if urls is None else urls
        token = os.environ.get("ROUTEBOOK_TOKEN", "") if token is None else token
        self._urls = [url.strip().rstrip("/") for url in (urls.split(",") if isinstance(urls, str) else urls)]
        if not self._urls or not all(url.startswith(("http://", "https://")) for url in self._urls):
            raise ValueError(f"{urls!r} is no list of http:// or https:// addresses")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._retries = retries
        self._cache_s = cache_s
        self._current = 0
        self._routes: OrderedDict[str, Route] = OrderedDict()

    @property
    def url(self) -> str:
        """The address in use."""
        return self._urls[self._current]

    def use_next(self) -> None:
        self._current = (self._current + 1) % len(self._urls)

    def pause(self, attempt: int) -> Pause:
        """It grows, and is random, so that many clients do not return at the same moment."""
        longest = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
        return Pause(longest * random.uniform(0.5, 1))  # noqa: S311

    # -- operations

    def lookup(self, topic: str, max_age_s: float | None) -> Steps[Route]:
        known = self._routes.get(topic)
        if known and known.age_s <= (self._cache_s if max_age_s is None else max_age_s):
            return known
        try:
            answer = yield from self._send("GET", f"/v1/routes/{_quoted(topic)}")
        except NotFoundError:
            self._routes.pop(topic, None)
            raise
        except UnreachableError:
            if known:
                return replace(known, is_fallback=True)
            raise
        return self._keep(route_of(topic, decode(answer.content), answer.headers))

    def register(self, seat: Seat) -> Steps[Mapping[str, Any]]:
        answer = yield from self._send("PUT", seat.path, body=msgspec.json.encode(seat.body))
        found: Mapping[str, Any] = decode(answer.content)
        return found

    def heartbeat(self, seat: Seat) -> Steps[None]:
        """Registers again if the service does not know the broker any more."""
        try:
            yield from self._send("POST", f"{seat.path}/heartbeat")
        except NotFoundError as error:
            if error.kind != _UNKNOWN_BROKER:
                raise
            yield from self.register(seat)

    def unregister(self, seat: Seat) -> Steps[None]:
        try:
            yield from self._send("DELETE", seat.path)
        except NotFoundError:
            return  # It has expired or was removed before.

    def changes(self, params: Mapping[str, Any]) -> Steps[tuple[list[Change], str | None]]:
        """One page, and the cursor of the next one, None at the end."""
        answer = yield from self._send("GET", "/v1/changes", params=params)
        page = decode(answer.content)
        cursor = page["next_cursor"] if page.get("has_more") else None
        return [change_of(entry) for entry in page["changes"]], cursor

    # -- streams

    def stream(self, path: str, params: Mapping[str, Any], last_id: str) -> Request:
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        return Request("GET", self.url + path, headers, _without_none(params))

    def route_event(self, event: "ServerEvent", history: str) -> RouteEvent:
        if event.name == "reset":
            self._routes.clear()
            return RouteEvent("", None, is_reset=True)
        data = decode(event.data.encode())
        topic: str = data["topic"]
        if data["route"] is None:
            self._routes.pop(topic, None)
            return RouteEvent(topic, None)
        headers = {"x-routebook-version": str(data["version"]), "x-routebook-history": history}
        return RouteEvent(topic, self._keep(route_of(topic, data["route"], headers)))

    # -- sending

    def _keep(self, route: Route) -> Route:
        self._routes[route.topic] = route
        self._routes.move_to_end(route.topic)
        if len(self._routes) > MAX_ROUTES:
            self._routes.popitem(last=False)
        return route

    def _send(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> Steps[Answer]:
        """Every request of this class is idempotent, so each is repeated, at the next address, after a failure."""
        problem: ClientError = UnreachableError(f"{self.url} was not asked.")
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        for attempt in range(self._retries + 1):
            if attempt and (attempt >= len(self._urls) or problem.status):
                yield self.pause(attempt - 1)
            answer = yield Request(method, self.url + path, headers, _without_none(params or {}), body)
            if answer is not None and answer.status < 400:
                return answer
            problem = problem_of(answer, self.url)
            if answer is not None and answer.status not in _TEMPORARY:
                raise problem
            self.use_next()
        raise problem


def problem_of(answer: Answer | None, url: str) -> ClientError:
    if answer is None:
        return UnreachableError(f"{url} cannot be reached.")
    try:
        body = decode(answer.content)
        detail, kind, advice = body["detail"], body["type"], body.get("advice", "")
    except (msgspec.DecodeError, KeyError, TypeError):
        detail, kind, advice = f"{url} answered {answer.status}.", "", "Is this the HTTP port of Routebook?"
    kinds = {401: NotAllowedError, 403: NotAllowedError, 404: NotFoundError}
    error = UnreachableError if answer.status in _TEMPORARY else kinds.get(answer.status, RefusedError)
    return error(detail, kind=kind, status=answer.status, advice=advice)


def change_of(entry: Mapping[str, Any]) -> Change:
    return Change(str(entry.get("id", "")), str(entry.get("kind", "")), entry)


# -- server-sent events


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str
    id: str


class EventReader:
    """Collects lines to events. The last id is kept, to resume after a lost connection."""

    def __init__(self) -> None:
        self.last_id = ""
        self.clear()

    def clear(self) -> None:
        """Forgets an incomplete event. It is sent again over the next connection."""
        self._name = "message"
        self._data: list[str] = []
        self._id = ""

    def read(self, line: str) -> ServerEvent | None:
        """The event that this line completes."""
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data), self._id) if self._data else None
            if self._id:
                self.last_id = self._id
            self.clear()
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return None


class SeenChanges:
    """Makes each change of a stream once: after a lost connection, those behind the last id are sent again."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def read(self, event: ServerEvent) -> Change | None:
        change = change_of(decode(event.data.encode()))
        is_known = change.id in self._ids
        self._ids.add(change.id)
        if event.id:
            self._ids.clear()
        return None if is_known else change


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _without_none(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
