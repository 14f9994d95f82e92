"""The admin port of one worker: is it alive, can it answer, what has it counted.

`/livez` looks at nothing: a worker whose store is away still answers from memory, and to end it would only
add harm. `/readyz` fails before the first complete load and while draining; how old the table is it reports,
and never judges.
"""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from routebook.http_api import problems
from routebook.observability.metrics import CONTENT_TYPE, Metrics
from routebook.registry.registry import Registry


def create_admin_app(registry: Registry, metrics: Metrics, *, draining: Callable[[], bool]) -> Starlette:
    admin = _Admin(registry, metrics, draining)
    return Starlette(
        routes=[
            Route("/livez", admin.show_life),
            Route("/readyz", admin.show_readiness),
            Route("/metrics", admin.show_metrics),
        ],
        exception_handlers={
            HTTPException: problems.answer_http_exception,
            Exception: problems.answer_unexpected,
        },
    )


class _Admin:
    def __init__(self, registry: Registry, metrics: Metrics, draining: Callable[[], bool]) -> None:
        self._registry = registry
        self._metrics = metrics
        self._draining = draining

    async def show_life(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_readiness(self, _: Request) -> Response:
        missing = self._missing()
        body: dict[str, Any] = {
            "status": "not ready" if missing else "ok",
            "missing": missing,
            "version": self._registry.version,
            "history": self._registry.history,
            "stale_seconds": self._registry.stale_seconds,
        }
        return JSONResponse(body, status_code=503 if missing else 200)

    async def show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    def _missing(self) -> list[str]:
        missing = []
        if not self._registry.complete:
            missing.append("the first complete load of the table from the store")
        if self._draining():
            missing.append("nothing: this worker is draining and takes no new work")
        return missing
