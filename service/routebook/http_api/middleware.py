"""The ASGI middleware around the path operations: request bodies, metrics, and the headers of reads.

`app.create_app` shows their order.
"""

import math
import time
from time import perf_counter
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.http_api import problems
from routebook.http_api.problems import REFUSAL_REASON, Problem, problem_response
from routebook.listeners.peers import UNKNOWN, Peers
from routebook.observability.metrics import Metrics, Reason
from routebook.registry.registry import Registry
from routebook.registry.status import warnings_of
from routebook.settings.live import LiveSettings

# -- request bodies

_METHODS_WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH", "DELETE"})

MAX_BODIES_IN_MEMORY: Final = 4
"""How many bodies of the maximum size one worker holds at a time. The usual body is a hundredth of that size."""


class BodyMiddleware:
    """Reads the body of a write before any other code sees the request, and limits its size and the sum of all sizes.

    `serving.py` limits the time that a body may take to arrive.
    """

    def __init__(self, app: ASGIApp, live_settings: LiveSettings) -> None:
        self._app = app
        self._live_settings = live_settings
        self._bytes_in_memory = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _METHODS_WITH_BODY:
            await self._app(scope, receive, send)
            return
        buffer = _BodyBuffer()
        try:
            body = await self._read(buffer, Headers(scope=scope), receive)
        except Problem as problem:
            await self._refuse(problem, receive, send)
        else:
            if body is not None:
                message = {"type": "http.request", "body": body, "more_body": False}
                await self._app(_with_json_content_type(scope), receive_first(message, receive), send)
        finally:
            self._bytes_in_memory -= buffer.size

    async def _read(self, buffer: "_BodyBuffer", headers: Headers, receive: Receive) -> bytes | None:
        """Returns None when the client has disconnected."""
        limit = self._live_settings.current.max_body_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        if not declared and "transfer-encoding" not in headers:
            return b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            buffer.add(message.get("body", b""))
            self._bytes_in_memory += len(message.get("body", b""))
            if buffer.size > limit:
                raise _too_large(limit)
            if self._bytes_in_memory > limit * MAX_BODIES_IN_MEMORY:
                raise Problem(
                    problems.BUSY,
                    "This worker is receiving too many large bodies at the same time.",
                    advice="Try again in a moment.",
                )
            if not message.get("more_body", False):
                return buffer.take()

    async def _refuse(self, problem: Problem, receive: Receive, send: Send) -> None:
        """Sends the problem at once, then reads and discards what the client still sends, up to the maximum size.

        Closing while bytes are still arriving would reset the connection, and the client could lose the response.
        """
        response = problem_response(problem.kind, problem.detail, advice=problem.advice)
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        discarded_bytes = 0
        while discarded_bytes <= self._live_settings.current.max_body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
            discarded_bytes += len(message.get("body", b""))
        await send({"type": "http.response.body", "body": b""})


class _BodyBuffer:
    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self._parts.append(part)

    def take(self) -> bytes:
        body = b"".join(self._parts)
        self._parts.clear()
        return body


def _too_large(limit: int) -> Problem:
    return Problem(
        problems.TOO_LARGE,
        f"The body is larger than {limit} bytes.",
        advice="Register in parts, or raise ROUTEBOOK_MAX_BODY_BYTES.",
    )


def _with_json_content_type(scope: Scope) -> Scope:
    """Every body here is JSON, so a client such as `curl -d`, which declares a form, need not set the header."""
    headers = MutableHeaders(raw=list(scope["headers"]))
    headers["content-type"] = "application/json"
    return {**scope, "headers": headers.raw}


def receive_first(message: Message, receive: Receive) -> Receive:
    """A `receive` that returns this message first, and then what the server receives."""
    is_returned = False

    async def receive_next() -> Message:
        nonlocal is_returned
        if is_returned:
            return await receive()
        is_returned = True
        return message

    return receive_next


# -- requests per second

_SEATS: Final = "/v1/clusters/"


class RequestLimitMiddleware:
    """Limits the requests of one address. Registrations and heartbeats count, and are never refused."""

    def __init__(self, app: ASGIApp, peers: Peers) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        budget = self._peers.get(scope["client"][0] if scope.get("client") else UNKNOWN).requests
        is_sign_of_life = scope["method"] in ("PUT", "POST") and scope["path"].startswith(_SEATS)
        if budget.take(1, time.monotonic()) or is_sign_of_life:
            await self._app(scope, receive, send)
            return
        response = problem_response(
            problems.TOO_MANY,
            f"This address sends more than {budget.per_second:g} requests a second "
            f"(max_requests_per_second_per_address is {budget.per_second:g}).",
            advice="Send fewer, or raise max_requests_per_second_per_address.",
        )
        await response(scope, receive, send)


# -- metrics

PATH_PATTERN: Final = "routebook.path_pattern"
"""Scope key: the pattern of the path, set by code that answers without FastAPI's router."""

_KNOWN_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})

_REASON_BY_STATUS: Final[dict[int, Reason]] = {
    401: "forbidden",
    403: "forbidden",
    429: "forbidden",
    404: "not_found",
    409: "refused",
    500: "failed",
}
"""For errors of this port itself. Any other 4xx counts as invalid, any other 5xx as not ready."""


class MetricsMiddleware:
    """Counts and times requests by path pattern. `LookupEndpoint` counts the lookups that it answers.

    It wraps FastAPI directly, because FastAPI's router stores the matched pattern in the scope that it receives.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        status = 500

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
            self._metrics.http_request(method, _path_pattern(scope), status, perf_counter() - start)
            if status >= 400:
                default: Reason = "not_ready" if status > 500 else "invalid"
                reason = scope.get(REFUSAL_REASON) or _REASON_BY_STATUS.get(status, default)
                self._metrics.request_refused("http", reason)


def _path_pattern(scope: Scope) -> str:
    return str(scope.get(PATH_PATTERN) or getattr(scope.get("route"), "path_format", "other"))


# -- reads

_READ_PATHS: Final = ("/v1/", "/rocketmq/")
_STREAM_PATHS: Final = ("/v1/watch", "/console/events")
FRESHNESS: Final = "routebook.freshness"
"""Scope key: the freshness headers, set by a path operation before it reads the table."""


def freshness_headers(registry: Registry) -> list[tuple[str, str]]:
    """Version and history of this worker's table, its age while the store does not answer, and why the answer may be
    wrong or old.
    """
    headers = [
        ("x-routebook-version", str(registry.replica.version)),
        ("x-routebook-history", registry.replica.history),
    ]
    stale_seconds = registry.stale_seconds
    if stale_seconds:
        headers.append(("x-routebook-stale-seconds", str(math.ceil(stale_seconds))))
    if warnings := warnings_of(registry.replica, registry.store_health):
        headers.append(("x-routebook-warnings", ", ".join(warnings)))
    return headers


class ReadMiddleware:
    """Adds the freshness headers to every response to a read, problems included, and answers HEAD like GET without a
    body.
    """

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        # A stream never ends, so HEAD is not turned into GET for it.
        is_stream = scope["path"] in _STREAM_PATHS or b"follow" in scope["query_string"]
        is_head = scope["method"] == "HEAD" and not is_stream
        inner = {**scope, "method": "GET"} if is_head else scope
        needs_freshness = scope["path"].startswith(_READ_PATHS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and needs_freshness:
                headers = MutableHeaders(scope=message)
                for name, value in inner.get(FRESHNESS) or freshness_headers(self._registry):
                    headers[name] = value
            elif message["type"] == "http.response.body" and is_head:
                message = {**message, "body": b""}
            await send(message)

        await self._app(inner, receive, send_with_headers)
