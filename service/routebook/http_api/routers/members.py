"""One broker of a cluster: heartbeats and unregistration. Its registration is `http_api.registration`."""

from fastapi import APIRouter

from routebook.errors import NotFoundError
from routebook.http_api import problems
from routebook.http_api.callers import AdministratorOf, CallerOf
from routebook.http_api.dependencies import BrokerId, BrokerName, ClusterName, RegistryOf
from routebook.http_api.openapi import ADMIN, INPUT, STORE, WRITE, answers_with, not_found
from routebook.http_api.problems import Problem
from routebook.http_api.registration import SEAT_PATTERN
from routebook.http_api.schemas.table import Written

router = APIRouter(tags=["brokers"], prefix=SEAT_PATTERN)


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
