"""Builds the HTTP application: path operations in the middle, thin layers around, the short way in front."""

import asyncio

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook import __version__
from routebook.errors import RoutebookError
from routebook.http_api import openapi, problems
from routebook.http_api.body_layer import BodyLayer
from routebook.http_api.dependencies import Parts, ReadLayer
from routebook.http_api.measuring import MeasuringLayer
from routebook.http_api.pages import add_pages
from routebook.http_api.registration import RegistrationEndpoint
from routebook.http_api.routers import ALL_ROUTERS
from routebook.http_api.short_way import ShortWay
from routebook.http_api.watch_streams import Watchers
from routebook.observability.metrics import Metrics
from routebook.registry.registry import Registry
from routebook.settings.live import LiveSettings


class HttpApp:
    """The ASGI application, and the one thing that its server must be able to say to it."""

    def __init__(self, app: ASGIApp, watchers: Watchers) -> None:
        self._app = app
        self._watchers = watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except asyncio.CancelledError:
            # Only a server that stops does this, to those who outlast its patience. What is half said stays so.
            if not begun:
                response = problems.problem_response(
                    problems.STOPPING, "This worker is stopping.", advice="Ask again: another one, or soon this one."
                )
                await response(scope, receive, send)

    def stop(self) -> None:
        """Ends every watch; called when the server drains (`serving.HttpServer` does)."""
        self._watchers.stopping.set()


def create_app(registry: Registry, live_settings: LiveSettings, metrics: Metrics) -> HttpApp:
    watchers = Watchers(metrics)
    app: ASGIApp = build_operations(Parts(registry, live_settings, metrics, watchers))
    app = RegistrationEndpoint(app, registry)
    app = MeasuringLayer(app, metrics)
    app = BodyLayer(app, live_settings)
    app = ReadLayer(app, registry)
    app = ShortWay(app, registry, metrics)
    return HttpApp(app, watchers)


def build_operations(parts: Parts | None) -> FastAPI:
    """Without parts it can still describe itself: that is all `/openapi.json` needs."""
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
    app.state.parts = parts
    for router in ALL_ROUTERS:
        app.include_router(router)
    add_pages(app)
    openapi.describe_with_problems(app)
    app.add_exception_handler(RoutebookError, problems.answer_routebook_error)
    app.add_exception_handler(problems.Problem, problems.answer_problem)
    app.add_exception_handler(HTTPException, problems.answer_http_exception)
    app.add_exception_handler(RequestValidationError, problems.answer_validation_error)
    app.add_exception_handler(Exception, problems.answer_unexpected)
    return app
