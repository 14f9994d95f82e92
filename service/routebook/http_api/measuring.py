"""Counts and times what goes through the path operations, by pattern. The short way counts its lookups
itself.
"""

from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.observability.metrics import Metrics, Reason

PATTERN: Final = "routebook.pattern"
"""Where a layer that answers by itself says for which path."""
REFUSAL: Final = "routebook.refusal"
"""Where whoever answers with an error of the route table says why, in a word of `observability.refusals`."""

_BY_STATUS: Final[dict[int, Reason]] = {403: "forbidden", 404: "not_found", 409: "refused", 500: "failed"}
"""Of what this port refuses by itself; the rest of it is invalid, or comes while the worker stops."""


class MeasuringLayer:
    """Stands directly before FastAPI: the pattern that matched is put into the scope that it hands on."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        status = 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.http_request(method, _pattern(scope), status, perf_counter() - start)
            if status >= 400:
                reason = scope.get(REFUSAL) or _BY_STATUS.get(status, "not_ready" if status > 500 else "invalid")
                self._metrics.request_refused("http", reason)


_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})


def _pattern(scope: Scope) -> str:
    return str(scope.get(PATTERN) or getattr(scope.get("route"), "path_format", "other"))
