"""The change history."""

from typing import Annotated

from fastapi import APIRouter, Query

from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, READ, STORE, answers_with
from routebook.http_api.schemas.operation import BaselineWanted, Changes, ChangeShown, Missing

router = APIRouter(tags=["operation"])


@router.get("/v1/changes", summary="Read the history", responses=answers_with(*READ, *STORE), dependencies=[Seen])
async def list_changes(
    registry: RegistryOf,
    since: Annotated[int, Query(ge=0, le=2**63 - 1, description="Versions after this one; 0 = all that is kept.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many entries at most.")] = 100,
) -> Changes:
    """What changed, when, by whom; newest last. Read on with `since=next_since` until a page is empty."""
    found = await registry.changes(since, limit)
    first = found[0].version if found else since + 1
    return Changes(
        changes=[
            ChangeShown(**{**change.fields, "entry": change.id, "ms": change.ms, "version": change.version})
            for change in found
        ],
        next_since=found[-1].version if found else since,
        missing=Missing(from_version=since + 1, to_version=first - 1) if since and first > since + 1 else None,
    )


@router.post(
    "/v1/changes/baseline",
    summary="Write the whole table into the history",
    responses=answers_with(*ADMIN, *STORE),
)
async def request_baseline(registry: RegistryOf, caller: AdministratorOf) -> BaselineWanted:
    """The leader does so within some seconds, part by part, from `baseline-begin` to `baseline-end`. Readers of the
    history can begin there; routes do not change by it.
    """
    del caller
    return BaselineWanted(wanted_since_ms=await registry.request_baseline())
