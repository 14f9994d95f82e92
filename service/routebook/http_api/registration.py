"""One seat of a group: registering a broker, its heartbeats, and its deregistration.

Nearly every PUT repeats the previous registration of its broker. FastAPI's routing and validation would cost several
times as much as the rest of such a request, so `RegistrationEndpoint` answers it in front of FastAPI: it passes the raw
request to the registry, which asks for the validated body only when it has to compare it. FastAPI describes the
operation in `/openapi.json`, from the signature of `register_broker`.
"""

import re
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import NotFoundError, RoutebookError
from routebook.http_api import problems
from routebook.http_api.callers import AdministratorDep, CallerDep, caller_of
from routebook.http_api.dependencies import BrokerId, BrokerName, ClusterName, RegistryDep
from routebook.http_api.middleware import PATH_PATTERN
from routebook.http_api.openapi import ADMIN, BODY, INPUT, STORE, WRITE, not_found, problem_responses
from routebook.http_api.problems import Problem
from routebook.http_api.schemas.registration import RegistrationInput, RegistrationResponse
from routebook.http_api.schemas.table import WriteResult
from routebook.model.broker import Registration, Seat
from routebook.registry.registry import Registry

SEAT_PATTERN: Final = "/v1/clusters/{cluster}/brokers/{name}/{id}"
_SEAT_PATH: Final = re.compile(r"/v1/clusters/(?P<cluster>[^/]+)/brokers/(?P<name>[^/]+)/(?P<id>[^/]+)")

Replace = Annotated[bool, Query(description="Remove the broker's topics that this body does not name.")]
_BROKER_ID: Final = TypeAdapter[int](BrokerId)
_REPLACE: Final = TypeAdapter[bool](Replace)
_Value = TypeVar("_Value")

router = APIRouter(tags=["brokers"], prefix=SEAT_PATTERN)


@router.put(
    "",
    summary="Register a broker",
    responses=problem_responses(*BODY, *WRITE),
    response_model=RegistrationResponse,
)
def register_broker(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    body: RegistrationInput,
    replace: Replace = False,
) -> Registration:
    """Topics are merged with those registered before, unless `?replace=true`. Repeating the same body is cheap and
    counts as a heartbeat.

    Only the master, or the smallest slave of a group without a master, has topics of its own.
    """
    return body.as_registration(cluster, name, id, replace=replace)


@router.delete(
    "",
    summary="Deregister a broker",
    responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("broker")),
)
async def unregister_broker(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    registry: RegistryDep,
    caller: AdministratorDep,
) -> WriteResult:
    """Removes the broker from its seat at once. With its last broker, the group and its topics are removed."""
    return WriteResult(version=await registry.unregister(cluster, name, id, caller, cause="operator"))


@router.post(
    "/heartbeat",
    summary="Send a heartbeat",
    responses=problem_responses(*INPUT, *WRITE, problems.UNKNOWN_BROKER),
)
async def heartbeat(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path calls it id
    registry: RegistryDep,
    caller: CallerDep,
) -> WriteResult:
    """Restarts the broker's `timeout_ms`. After `unknown-broker`, register again."""
    try:
        return WriteResult(version=await registry.heartbeat(cluster, name, id, caller))
    except NotFoundError as error:
        advice = "Register it with PUT on the same path, without /heartbeat."
        raise Problem(problems.UNKNOWN_BROKER, error.message, advice=advice) from error


class RegistrationEndpoint:
    """Answers every PUT of a seat. `BodyMiddleware` before it delivers the body in one message."""

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _SEAT_PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "PUT" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope[PATH_PATTERN] = SEAT_PATTERN
        request, body = Request(scope), (await receive()).get("body", b"")
        try:
            response = await self._register(request, found["cluster"], found["name"], found["id"], body)
        except RoutebookError as error:
            response = await problems.handle_routebook_error(request, error)
        except Problem as error:
            response = await problems.handle_problem(request, error)
        except RequestValidationError as error:
            response = await problems.handle_validation_error(request, error)
        except Exception as error:
            await (await problems.handle_unexpected_error(request, error))(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)

    async def _register(self, request: Request, cluster: str, name: str, id_text: str, body: bytes) -> Response:
        caller = caller_of(request, self._registry)
        seat = Seat(cluster, name, _validated(_BROKER_ID, id_text, "path", "id"))

        async def read_body() -> Registration:
            replace = request.query_params.get("replace")
            return register_broker(
                *seat,
                body=_validated_body(body),
                replace=replace is not None and _validated(_REPLACE, replace, "query", "replace"),
            )

        path = request.scope["path"].encode("utf-8", "surrogatepass")
        result = await self._registry.register(seat, (path, request.scope["query_string"], body), read_body, caller)
        return Response(RegistrationResponse.of(result).model_dump_json(), media_type="application/json")


def _validated(adapter: TypeAdapter[_Value], text: str, *location: str) -> _Value:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise _request_error(error, location) from error


def _validated_body(body: bytes) -> RegistrationInput:
    try:
        return RegistrationInput.model_validate_json(body)
    except ValidationError as error:
        raise _request_error(error, ("body",)) from error


def _request_error(error: ValidationError, location: tuple[str, ...]) -> RequestValidationError:
    """The error that FastAPI would raise for it."""
    faults: list[dict[str, Any]] = [
        {**fault, "loc": (*location, *fault["loc"])} for fault in error.errors(include_url=False, include_input=False)
    ]
    return RequestValidationError(faults)
