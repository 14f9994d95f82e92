"""Bounds what the JSON of a request costs before any object is made of it.

The path operations of FastAPI decode a body as soon as it has arrived, before anything is known about its sender, and
in one go. So large bodies are only for the two operations that need them: a registration, which is decoded in steps
(`registration.py`), and the import of a snapshot, which is decoded only for an administrator.
"""

import time
from collections.abc import Generator
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import BusyError, LimitError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.callers import authorize
from routebook.http_api.dependencies import AppContext
from routebook.http_api.middleware import receive_first
from routebook.http_api.problems import Problem
from routebook.model.identity import Role

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
    """Stands directly before FastAPI. `BodyMiddleware` before it delivers the body in one message."""

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
