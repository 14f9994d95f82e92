"""Reads the body of a write before anything else sees it: bounded one by one, and bounded in sum.

The time to receive it is bounded by the connection (`serving.py`).
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.http_api import problems
from routebook.http_api.problems import Problem, problem_response
from routebook.settings.live import LiveSettings

_WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH", "DELETE"})

BODIES_AT_ONCE: Final = 4
"""So many bodies of the largest size may be held at a time; a fleet's usual bodies are a hundredth of
that.
"""


class BodyLayer:
    def __init__(self, app: ASGIApp, live_settings: LiveSettings) -> None:
        self._app = app
        self._live_settings = live_settings
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        body = _Body()
        try:
            whole = await self._read(body, Headers(scope=scope), receive)
        except Problem as problem:
            await self._refuse(problem, receive, send)
        else:
            if whole is not None:
                body_message = {"type": "http.request", "body": whole, "more_body": False}
                await self._app(_as_json(scope), hand_on(body_message, receive), send)
        finally:
            self._held -= body.size

    async def _read(self, body: "_Body", headers: Headers, receive: Receive) -> bytes | None:
        """None when the client has gone."""
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
            body.add(message.get("body", b""))
            self._held += len(message.get("body", b""))
            if body.size > limit:
                raise _too_large(limit)
            if self._held > limit * BODIES_AT_ONCE:
                raise Problem(problems.BUSY, "Too many large bodies at once.", advice="Try again in a moment.")
            if not message.get("more_body", False):
                return body.take()

    async def _refuse(self, problem: Problem, receive: Receive, send: Send) -> None:
        """Says it at once, then lets the client finish its sentence, within bounds: to close on bytes that are
        still coming would reset the connection, and the answer could be lost with it.
        """
        response = problem_response(problem.kind, problem.detail, advice=problem.advice)
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        passed_over = 0
        while passed_over <= self._live_settings.current.max_body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
            passed_over += len(message.get("body", b""))
        await send({"type": "http.response.body", "body": b""})


class _Body:
    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self._parts.append(part)

    def take(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole


def _too_large(limit: int) -> Problem:
    return Problem(
        problems.TOO_LARGE,
        f"The body is larger than {limit} bytes.",
        advice="Register in parts, or raise ROUTEBOOK_MAX_BODY_BYTES.",
    )


def _as_json(scope: Scope) -> Scope:
    """Bodies here are JSON and nothing else, so `curl -d` (which claims a form) need not say it."""
    headers = MutableHeaders(raw=list(scope["headers"]))
    headers["content-type"] = "application/json"
    return {**scope, "headers": headers.raw}


def hand_on(message: Message, receive: Receive) -> Receive:
    """For the next layer: what was received once comes again, then what else there is."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return message

    return receive_again
