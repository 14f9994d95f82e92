"""The ASGI middleware around the path operations: names of the host, bodies and the cost of their JSON, requests per
second, metrics, and the headers of reads.

`app.create_app` shows their order.
"""

import socket
import time
from collections.abc import Awaitable, Generator
from ipaddress import ip_address
from time import perf_counter
from typing import Final, TypeVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.errors import BusyError, LimitError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.audit import object_of, source_of
from routebook.http_api.callers import authorize
from routebook.http_api.dependencies import FRESHNESS, AppContext, freshness_headers
from routebook.http_api.problems import REFUSAL_REASON, Problem, problem_response
from routebook.listeners.peers import UNKNOWN, Peers
from routebook.model.identity import Role
from routebook.model.names import ANONYMOUS, Caller
from routebook.observability.metrics import Metrics, Reason
from routebook.registry.registry import Registry
from routebook.settings import Settings
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


# -- the name of the host

_LOCALHOST: Final = "localhost"
ANY_NAME: Final = "*"
_MAX_CACHED: Final = 1_000


def host_of(header: str) -> str:
    """The host in a `Host` header, in lower case, without port, brackets and the final dot."""
    host, _, port = header.strip().lower().partition("]")
    if host.startswith("[") and (not port or port.startswith(":")):
        return host[1:]
    return header.strip().lower().partition(":")[0].removesuffix(".")


def own_names(settings: Settings) -> frozenset[str]:
    advertised = (host_of(address) for address in settings.advertised)
    return frozenset({_LOCALHOST, socket.gethostname().lower(), *advertised, *settings.host_names})


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """`host` as `host_of` returns it. A name that begins with `*.` covers all names below it."""
    if host in names or ANY_NAME in names or not host:
        return True
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return any(name.startswith("*.") and host.endswith(name[1:]) for name in names)
    return True


class HostMiddleware:
    """Refuses requests whose `Host` header is not an address or a name of this service.

    A page of another site can make its own name resolve to this machine (DNS rebinding). The browser then takes this
    service for that site, and the page may read the answers. The `Host` header still has the page's name, so a service
    that answers only to its own names cannot be used in this way. A host name without a dot is no exception: resolvers
    complete it with a search domain, and anyone may have registered a name in that domain.

    In front of everything else of the port. Headers that were accepted are remembered, so that a lookup costs one
    search in a dictionary.
    """

    def __init__(self, app: ASGIApp, registry: Registry, settings: Settings) -> None:
        self._app = app
        self._registry = registry
        self._names = own_names(settings)
        self._accepted: dict[bytes, bool] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine itself, which would cost each lookup as much as the check."""
        for name, value in scope.get("headers", ()):
            if name == b"host":
                # Nothing reads a second `Host`.
                if value in self._accepted or self._accepts(value):
                    break
                return self._refuse(value, scope, receive, send)
        return self._app(scope, receive, send)

    def _accepts(self, value: bytes) -> bool:
        if not is_own_host(host_of(value.decode("latin-1")), self._names):
            return False
        if len(self._accepted) < _MAX_CACHED:
            self._accepted[value] = True
        return True

    async def _refuse(self, value: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"{value[:200].decode('ascii', 'backslashreplace')!r} is not a name of this service."
        verb = f"{scope['method'].lower()[:10]} request"
        caller = Caller(ANONYMOUS, source_of(scope), worker=self._registry.worker, port="http", verb=verb)
        self._registry.audit.refused(caller, what=object_of(scope), reason=f"{problems.WRONG_HOST.type}: {detail}")
        response = problem_response(
            problems.WRONG_HOST,
            detail,
            advice="Use its address, or add the name to ROUTEBOOK_HTTP_HOST_NAMES (http_host_names).",
        )
        await response(scope, receive, send)


# -- the cost of JSON

MAX_OPERATION_BYTES: Final = 1024 * 1024
MAX_OPERATION_VALUES: Final = 65_536
"""For every operation but a registration and a snapshot. The largest honest body has a topic's queues on a thousand
brokers, with 5,000 values.
"""
_STEP_BYTES: Final = 256 * 1024
_SNAPSHOT_PATH: Final = "/v1/snapshot"

_Result = TypeVar("_Result")


def check_values_in_steps(body: bytes, max_values: int) -> Generator[None, None, None]:
    """Yields about once a millisecond. It does not check anything else: what is no JSON may pass."""
    values = 0
    for at in range(0, len(body), _STEP_BYTES):
        if at:
            yield
        values += _count_values(body[at : at + _STEP_BYTES])
        if values > max_values:
            raise LimitError(f"The body has more than {max_values} values", "max_json_values", max_values)


def _count_values(part: bytes) -> int:
    """At least the number of values: each but the last of an object or array ends with a comma."""
    return part.count(b",") + part.count(b"{") + part.count(b"[")


async def decode_in_steps(context: AppContext, request: Request, steps: Generator[None, None, _Result]) -> _Result:
    """Runs the steps as part of what the sender's address may spend on decoding."""
    budget = context.peer_of(request).decoding
    if not budget.has_any(time.monotonic()):
        percent = context.live_settings.current.max_decoding_percent_per_address
        raise BusyError(
            f"The bodies of this address took more time to decode than {percent} % of a processor "
            "(max_decoding_percent_per_address).",
            advice="Send it again later.",
        )
    return await context.registry.long_work.run(steps, charge=budget.charge)


class JsonMiddleware:
    """Bounds what the JSON of a request costs before any object is made of it.

    The path operations of FastAPI decode a body as soon as it has arrived, before anything is known about its sender,
    and in one go. So large bodies are only for the two operations that need them: a registration, which is decoded in
    steps (`registration.py`), and the import of a snapshot, which is decoded only for an administrator.

    Stands directly before FastAPI. `BodyMiddleware` before it delivers the body in one message."""

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        message = await receive()
        request, body = Request(scope), message.get("body", b"")
        try:
            await self._check(request, body)
        except RoutebookError as error:
            response = await problems.handle_routebook_error(request, error)
        except Problem as error:
            response = await problems.handle_problem(request, error)
        else:
            await self._app(scope, receive_first(message, receive), send)
            return
        await response(scope, receive, send)

    async def _check(self, request: Request, body: bytes) -> None:
        if request.url.path != _SNAPSHOT_PATH:
            if len(body) > MAX_OPERATION_BYTES or _count_values(body) > MAX_OPERATION_VALUES:
                raise Problem(
                    problems.LIMIT,
                    f"The body may have {MAX_OPERATION_BYTES} bytes and {MAX_OPERATION_VALUES} values here.",
                    advice="See docs/limits.md.",
                )
            return
        if len(body) > MAX_OPERATION_BYTES:
            authorize(request, self._context, Role.ADMIN, lambda _identity: False)
        limit = self._context.live_settings.current.max_json_values
        await decode_in_steps(self._context, request, check_values_in_steps(body, limit))
