"""The whole namespace as one document: out, and in."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from routebook.http_api import problems
from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, BODY, READ, STORE, answers_with
from routebook.http_api.schemas.snapshot import SNAPSHOT_EXAMPLE, ImportShown, SnapshotGiven
from routebook.snapshots.document import encode_document
from routebook.snapshots.importing import Snapshots

router = APIRouter(tags=["operation"], prefix="/v1/snapshot")

_DOCUMENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The document; one group a line.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/SnapshotGiven"},
                "example": SNAPSHOT_EXAMPLE,
            }
        },
    }
}


@router.get(
    "",
    summary="Export a snapshot",
    response_class=StreamingResponse,
    responses=_DOCUMENT | answers_with(*READ, *ADMIN, problems.NOT_READY),
    dependencies=[Seen],
)
async def export_snapshot(registry: RegistryOf, caller: AdministratorOf) -> StreamingResponse:
    """Everything that this worker holds, of one version: brokers with their topics, key-values (secrets among
    them, if somebody put some there), settings changed at run time (secrets not among them).
    """
    del caller
    # A plain generator: it runs in a thread, so lookups go on while a large fleet is written.
    return StreamingResponse(encode_document(Snapshots(registry).take()), media_type="application/json")


@router.put("", summary="Import a snapshot", responses=answers_with(*BODY, *ADMIN, *STORE, problems.NOT_READY))
async def import_snapshot(
    given: SnapshotGiven,
    registry: RegistryOf,
    caller: AdministratorOf,
    dry_run: Annotated[bool, Query(description="Only say what would change.")] = False,
    replace: Annotated[
        bool, Query(description="Where the route table says something else, take the snapshot's word.")
    ] = False,
) -> ImportShown:
    """Brings what is not there. Checked as a whole before anything is written; the same again changes nothing, so an
    import that was interrupted is simply repeated.

    Brokers are registered as if they had come themselves: those that do not exist expire. Nothing is deleted. A large
    snapshot is brought in parts, as `routebook snapshot import` does.
    """
    imported = await Snapshots(registry).bring(given.as_snapshot(), caller, replace_known=replace, dry_run=dry_run)
    return ImportShown.of(imported, dry_run=dry_run)
