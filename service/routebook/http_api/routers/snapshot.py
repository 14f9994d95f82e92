"""Export and import of the whole namespace as one JSON document."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from routebook.http_api import problems
from routebook.http_api.callers import AdministratorDep
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, RegistryDep
from routebook.http_api.openapi import ADMIN, BODY, READ, STORE, problem_responses
from routebook.http_api.schemas.snapshot import SNAPSHOT_EXAMPLE, ImportResult, SnapshotInput
from routebook.snapshots import importing
from routebook.snapshots.document import encode_document, take_snapshot

router = APIRouter(tags=["operation"], prefix="/v1/snapshot")

_DOCUMENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The document, with one group per line.",
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/SnapshotInput"},
                "example": SNAPSHOT_EXAMPLE,
            }
        },
    }
}


@router.get(
    "",
    summary="Export a snapshot",
    response_class=StreamingResponse,
    responses=_DOCUMENT | problem_responses(*READ, *ADMIN, problems.NOT_READY),
    dependencies=[WAIT_FOR_MIN_VERSION],
)
async def export_snapshot(registry: RegistryDep, caller: AdministratorDep) -> StreamingResponse:
    """Everything in this worker's table at one version: brokers with their topics, key-values (including secrets, if
    they contain any), and settings changed at run time (without secrets).
    """
    del caller
    # A synchronous generator: it runs in a thread, so a large export does not delay lookups.
    return StreamingResponse(encode_document(take_snapshot(registry)), media_type="application/json")


@router.put("", summary="Import a snapshot", responses=problem_responses(*BODY, *ADMIN, *STORE, problems.NOT_READY))
async def import_snapshot(
    body: SnapshotInput,
    registry: RegistryDep,
    caller: AdministratorDep,
    dry_run: Annotated[bool, Query(description="Only report what would change.")] = False,
    replace: Annotated[
        bool, Query(description="Where the snapshot differs from the route table, write the snapshot's value.")
    ] = False,
) -> ImportResult:
    """Adds what the route table does not have. The whole document is checked before anything is written. Importing the
    same document again changes nothing, so after an interruption, repeat the import.

    Brokers are registered as if they had done it themselves, and expire when they do not exist. Nothing is deleted.
    Send a large snapshot in parts, as `routebook snapshot import` does.
    """
    outcome = await importing.import_snapshot(
        registry, body.as_snapshot(), caller, replace_known=replace, dry_run=dry_run
    )
    return ImportResult.of(outcome, dry_run=dry_run)
