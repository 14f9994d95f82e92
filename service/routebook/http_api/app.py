"""Builds the application of the HTTP port: FastAPI's path operations, the middleware around them, and the endpoints in
front of FastAPI for lookups and registrations. Builds the application of the admin port, too.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook import __version__
from routebook.console.live import Console
from routebook.console.rendering import compile_templates
from routebook.errors import RoutebookError
from routebook.http_api import (
    console,
    console_actions,
    console_operation,
    fleet,
    history,
    lookup,
    openapi,
    operation,
    problems,
    questions,
    registration,
    reports,
    snapshot,
)
from routebook.http_api.audit import AuditMiddleware
from routebook.http_api.callers import ReadGuard
from routebook.http_api.dependencies import CHECK_QUERY_PARAMETERS, AppContext
from routebook.http_api.lookup import LookupEndpoint
from routebook.http_api.middleware import (
    BodyMiddleware,
    HostMiddleware,
    JsonMiddleware,
    MetricsMiddleware,
    ReadMiddleware,
    RequestLimitMiddleware,
)
from routebook.http_api.registration import RegistrationEndpoint
from routebook.http_api.watch_streams import Watchers
from routebook.listeners.peers import Peers
from routebook.observability.metrics import CONTENT_TYPE, Metrics
from routebook.registry.registry import Registry
from routebook.settings.live import LiveSettings

# In the order of the pages. Within a router, a fixed path comes before a pattern that also matches it.
ALL_ROUTERS: Final[tuple[APIRouter, ...]] = (
    lookup.router,
    history.router,
    registration.router,
    fleet.router,
    operation.router,
    snapshot.router,
    reports.router,
    questions.router,
)


class HttpApp:
    """The ASGI application with its stop signal."""

    def __init__(self, app: ASGIApp, operations: FastAPI, watchers: Watchers) -> None:
        self._app = app
        self._operations = operations
        self._watchers = watchers

    async def warm_up(self) -> None:
        """FastAPI prepares its routes for the first request, and Jinja each template for its first page. Together they
        take some 200 ms, for which lookups would wait in the event loop.
        """

        async def no_body() -> Message:
            return {"type": "http.request"}

        async def ignore(_: Message) -> None:
            return

        # No route has this path, so all of them are compared with it.
        scope = {"type": "http", "method": "GET", "path": "/warm-up", "query_string": b"", "headers": []}
        await self._operations(scope, no_body, ignore)
        await asyncio.to_thread(compile_templates)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except asyncio.CancelledError:
            # Only a stopping server cancels requests, at the end of its drain time. A response that has started
            # remains incomplete.
            if not is_started:
                response = problems.problem_response(
                    problems.STOPPING, "This worker is stopping.", advice="Send the request again."
                )
                await response(scope, receive, send)

    def stop(self) -> None:
        """Ends all watches. `serving.HttpServer` calls it when it begins to drain."""
        self._watchers.stopping.set()


def create_app(
    registry: Registry, live_settings: LiveSettings, metrics: Metrics, peers: Peers | None = None
) -> HttpApp:
    watchers = Watchers(metrics, live_settings)
    peers = Peers() if peers is None else peers
    console_state = Console(registry, metrics, watchers.stopping)
    context = AppContext(registry, live_settings, metrics, watchers, peers, console_state)
    operations = build_operations(context)
    app: ASGIApp = JsonMiddleware(operations, context)
    app = RegistrationEndpoint(app, context)
    app = MetricsMiddleware(app, metrics)
    app = BodyMiddleware(app, live_settings)
    app = AuditMiddleware(app, registry.audit, registry.worker)
    app = RequestLimitMiddleware(app, peers)
    app = ReadMiddleware(app, registry)
    app = LookupEndpoint(app, registry, metrics)
    if live_settings.current.http_reads == "token":
        app = ReadGuard(app, context)
    app = HostMiddleware(app, registry, live_settings.current)
    return HttpApp(app, operations, watchers)


def build_operations(context: AppContext | None) -> FastAPI:
    """Without a context, the application can only describe itself in `/openapi.json`."""
    app = FastAPI(
        title=openapi.TITLE,
        version=__version__,
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.context = context
    for router in ALL_ROUTERS:
        app.include_router(router, dependencies=[CHECK_QUERY_PARAMETERS])
    openapi.add_pages(app)
    for pages in (console.root, console.router, console_operation.router, console_actions.router):
        app.include_router(pages)
    openapi.install_openapi(app)
    app.add_exception_handler(RoutebookError, problems.handle_routebook_error)
    app.add_exception_handler(problems.Problem, problems.handle_problem)
    app.add_exception_handler(HTTPException, problems.handle_http_exception)
    app.add_exception_handler(RequestValidationError, problems.handle_validation_error)
    app.add_exception_handler(Exception, problems.handle_unexpected_error)
    return app


# -- the admin port of one worker: `/livez`, `/readyz` and `/metrics`


def create_admin_app(registry: Registry, metrics: Metrics, *, draining: Callable[[], bool]) -> Starlette:
    """`/livez` checks nothing: a worker without its store still answers lookups from memory, and a restart would lose
    that memory. `/readyz` fails before the first complete load and while the worker drains. It reports the age of the
    table, but no age makes it fail.
    """

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
