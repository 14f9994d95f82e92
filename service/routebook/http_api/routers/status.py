"""State of the service as this worker sees it."""

from fastapi import APIRouter

from routebook.http_api.dependencies import RegistryOf, Seen
from routebook.http_api.openapi import READ, answers_with
from routebook.http_api.schemas.operation import StatusShown

router = APIRouter(tags=["operation"])


@router.get("/v1/status", summary="Show the status", responses=answers_with(*READ), dependencies=[Seen])
async def show_status(registry: RegistryOf) -> StatusShown:
    """Version and digest of the table, age of the last contact with the store, leader, workers.

    Answered without the store too, then with what this worker knows alone.
    """
    return StatusShown.of(await registry.status())
