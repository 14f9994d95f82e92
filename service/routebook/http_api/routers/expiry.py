"""The guard against mass expiry: is one held, and an operator's word that lets it happen."""

from fastapi import APIRouter

from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, READ, STORE, answers_with
from routebook.http_api.schemas.operation import Expiry

router = APIRouter(tags=["operation"])


@router.get("/v1/expiry", summary="Show the expiry", responses=answers_with(*READ, *STORE), dependencies=[Seen])
async def show_expiry(registry: RegistryOf) -> Expiry:
    """Whether more brokers fell silent at once than is plausible, and which."""
    return Expiry.of(await registry.expiry_state())


@router.post("/v1/expiry/release", summary="Release a held expiry", responses=answers_with(*ADMIN, *STORE))
async def release_expiry(registry: RegistryOf, caller: AdministratorOf) -> Expiry:
    """They really are gone: the next scan removes those that are still silent. Without a held expiry it
    does nothing.
    """
    return Expiry.of(await registry.release_expiry(caller))
