"""One broker of a cluster: it registers, gives signs of life, leaves."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from routebook.errors import NotFoundError
from routebook.http_api import problems
from routebook.http_api.callers import AdministratorOf, CallerOf
from routebook.http_api.dependencies import BrokerId, BrokerName, ClusterName, RegistryOf
from routebook.http_api.openapi import ADMIN, BODY, INPUT, STORE, WRITE, answers_with, not_found
from routebook.http_api.problems import Problem
from routebook.http_api.repeat_way import DIGEST, SEAT_PATTERN
from routebook.http_api.schemas.registration import Registered, RegistrationGiven
from routebook.http_api.schemas.table import Written

router = APIRouter(tags=["brokers"], prefix=SEAT_PATTERN)


@router.put("", summary="Register a broker", responses=answers_with(*BODY, *WRITE))
async def register_broker(  # noqa: PLR0917 - FastAPI calls it by name
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path's own word
    given: RegistrationGiven,
    request: Request,
    registry: RegistryOf,
    caller: CallerOf,
    replace: Annotated[bool, Query(description="Topics that this body does not name are removed.")] = False,
) -> Registered:
    """Topics merge with those registered before, unless `?replace=true`. Repeating the same body is cheap
    and keeps it alive.

    Only a master, or the smallest slave of a group without one, has topics of its own.
    """
    registration = given.as_registration(cluster, name, id, replace=replace)
    digest: str | None = request.scope.get(DIGEST)
    result = await registry.register(registration, caller, body_digest=digest)
    return Registered.of(result)


@router.delete(
    "",
    summary="Unregister a broker",
    responses=answers_with(*INPUT, *ADMIN, *STORE, not_found("broker")),
)
async def unregister_broker(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path's own word
    registry: RegistryOf,
    caller: AdministratorOf,
) -> Written:
    """It leaves its seat now; the last of a group takes the group and its topics along."""
    return Written(version=await registry.unregister(cluster, name, id, caller, cause="operator"))


@router.post(
    "/heartbeat",
    summary="Give a sign of life",
    responses=answers_with(*INPUT, *WRITE, problems.UNKNOWN_BROKER),
)
async def heartbeat(
    cluster: ClusterName,
    name: BrokerName,
    id: BrokerId,  # noqa: A002 - the path's own word
    registry: RegistryOf,
    caller: CallerOf,
) -> Written:
    """Starts its `timeout_ms` anew. `unknown-broker` means: register."""
    try:
        return Written(version=await registry.heartbeat(cluster, name, id, caller))
    except NotFoundError as error:
        advice = "Register it with PUT on the same path, without /heartbeat."
        raise Problem(problems.UNKNOWN_BROKER, error.message, advice=advice) from error
