"""Broker groups as they are in the table, and their write permission."""

from fastapi import APIRouter

from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import BrokerName, OfCluster, PageOf, RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, BODY, READ, STORE, answers_with, not_found
from routebook.http_api.schemas.operation import WritableGiven
from routebook.http_api.schemas.table import Broker, Brokers, Touched

router = APIRouter(tags=["brokers"])


@router.get("/v1/brokers", summary="List brokers", responses=answers_with(*READ), dependencies=[Seen])
async def list_brokers(registry: RegistryOf, page: PageOf, cluster: OfCluster = None) -> Brokers:
    """Broker groups by name. With `cluster`: those listed under it."""
    names, next_cursor = page.of(registry.brokers(cluster))
    return Brokers(brokers=[Broker.of(registry.broker(name)) for name in names], next_cursor=next_cursor)


@router.get(
    "/v1/brokers/{name}",
    summary="Show a broker",
    responses=answers_with(*READ, not_found("broker")),
    dependencies=[Seen],
)
async def show_broker(name: BrokerName, registry: RegistryOf) -> Broker:
    """All seats of the group with what their last registrations said."""
    return Broker.of(registry.broker(name))


@router.put(
    "/v1/brokers/{name}/write-permission",
    summary="Allow or forbid writing to a broker",
    responses=answers_with(*BODY, *ADMIN, *STORE),
)
async def set_write_permission(
    name: BrokerName, given: WritableGiven, registry: RegistryOf, caller: AdministratorOf
) -> Touched:
    """For maintenance: producers go elsewhere, consumers read on. A registration with a new data version
    overwrites it.
    """
    done = await registry.set_write_permission(name, given.writable, caller)
    return Touched(count=done.count, version=done.version)
