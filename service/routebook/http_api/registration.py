"""PUT of a broker: a registration, first or repeated.

Nearly every registration repeats the last one of its broker. FastAPI's routing and validation would cost several times
as much as the rest of such a request, so this endpoint stands in front of FastAPI: it hands the registry what was sent,
and the body is validated only when the registry asks for it. FastAPI still describes the operation in `/openapi.json`,
from the signature of `register_broker`.
"""

import re
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from routebook.errors import RoutebookError
from routebook.http_api import problems
from routebook.http_api.callers import caller_of
from routebook.http_api.dependencies import BrokerId, BrokerName, ClusterName
from routebook.http_api.measuring import PATTERN
from routebook.http_api.openapi import BODY, WRITE, answers_with
from routebook.http_api.problems import Problem
from routebook.http_api.schemas.registration import Registered, RegistrationGiven
from routebook.model.broker import Registration, Seat
from routebook.registry.registry import Registry

SEAT_PATTERN: Final = "/v1/clusters/{cluster}/brokers/{name}/{id}"
_SEAT: Final = re.compile(r"/v1/clusters/(?P<cluster>[^/]+)/brokers/(?P<name>[^/]+)/(?P<id>[^/]+)")

Replace = Annotated[bool, Query(description="Topics that this body does not name are removed.")]
_BROKER_ID: Final = TypeAdapter[int](BrokerId)
_REPLACE: Final = TypeAdapter[bool](Replace)
_Value = TypeVar("_Value")

router = APIRouter(tags=["brokers"], prefix=SEAT_PATTERN)


@router.put("", summary="Register a broker", responses=answers_with(*BODY, *WRITE), response_model=Registered)
def register_broker(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path's own word
    given: RegistrationGiven,
    replace: Replace = False,
) -> Registration:
    """Topics merge with those registered before, unless `?replace=true`. Repeating the same body is cheap
    and keeps it alive.

    Only a master, or the smallest slave of a group without one, has topics of its own.
    """
    return given.as_registration(cluster, name, id, replace=replace)


class RegistrationEndpoint:
    """Stands behind `BodyLayer`, which delivers the body in one message."""

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _SEAT.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "PUT" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope[PATTERN] = SEAT_PATTERN
        request, body = Request(scope), (await receive()).get("body", b"")
        try:
            response = await self._register(request, found["cluster"], found["name"], found["id"], body)
        except RoutebookError as error:
            response = await problems.answer_routebook_error(request, error)
        except Problem as error:
            response = await problems.answer_problem(request, error)
        except RequestValidationError as error:
            response = await problems.answer_validation_error(request, error)
        except Exception as error:
            await (await problems.answer_unexpected(request, error))(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)

    async def _register(self, request: Request, cluster: str, name: str, id_text: str, body: bytes) -> Response:
        caller = caller_of(request, self._registry)
        seat = Seat(cluster, name, _validated(_BROKER_ID, id_text, "path", "id"))

        async def read_body() -> Registration:
            replace = request.query_params.get("replace")
            return register_broker(
                *seat,
                given=_validated_body(body),
                replace=replace is not None and _validated(_REPLACE, replace, "query", "replace"),
            )

        path = request.scope["path"].encode("utf-8", "surrogatepass")
        result = await self._registry.register(seat, (path, request.scope["query_string"], body), read_body, caller)
        return Response(Registered.of(result).model_dump_json(), media_type="application/json")


def _validated(adapter: TypeAdapter[_Value], text: str, *where: str) -> _Value:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise _invalid(error, where) from error


def _validated_body(body: bytes) -> RegistrationGiven:
    try:
        return RegistrationGiven.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error, ("body",)) from error


def _invalid(error: ValidationError, where: tuple[str, ...]) -> RequestValidationError:
    """In the form that FastAPI gives such errors."""
    faults: list[dict[str, Any]] = [
        {**fault, "loc": (*where, *fault["loc"])} for fault in error.errors(include_url=False, include_input=False)
    ]
    return RequestValidationError(faults)
