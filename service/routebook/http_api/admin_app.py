"""The admin port of one worker: `/livez`, `/readyz` and `/metrics`.

`/livez` checks nothing: a worker without its store still answers lookups from memory, and a restart would lose that
memory. `/readyz` fails before the first complete load and while the worker drains. It reports the age of the table, but
no age makes it fail.
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
    async def show_liveness(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_readiness(_: Request) -> Response:
        missing = []
        if not registry.replica.complete:
            missing.append("the first complete load of the table from the store")
        if draining():
            missing.append("nothing: this worker is draining and accepts no new work")
        body: dict[str, Any] = {
            "status": "not ready" if missing else "ok",
            "missing": missing,
            "version": registry.replica.version,
            "history": registry.replica.history,
            "stale_seconds": registry.stale_seconds,
        }
        return JSONResponse(body, status_code=503 if missing else 200)

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    return Starlette(
        routes=[
            Route("/livez", show_liveness),
            Route("/readyz", show_readiness),
            Route("/metrics", show_metrics),
        ],
        exception_handlers={
            HTTPException: problems.handle_http_exception,
            Exception: problems.handle_unexpected_error,
        },
    )
