"""Reports of the pipeline: pages that were written beforehand, listed and handed out as they are."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Path as InPath

from routebook.http_api import problems
from routebook.http_api.parts import LiveSettingsOf
from routebook.http_api.problem_docs import INPUT, answers_with, not_found
from routebook.http_api.problems import Problem
from routebook.http_api.report_folder import ReportFolder
from routebook.http_api.schemas.reports import Report, Reports

router = APIRouter(tags=["operation"], prefix="/v1/reports")

# A report runs no script and loads nothing; a file that only looks like one can do neither here.
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_NO_REPORT: Final = not_found("report")
_SHOWN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The page.", "content": {"text/html": {"schema": {"type": "string"}}}}
}

_Found = TypeVar("_Found")


def _folder_of(live_settings: LiveSettingsOf) -> ReportFolder:
    folder = live_settings.current.reports_dir
    if not folder:
        raise Problem(
            problems.NO_REPORTS,
            "This worker has no folder with reports.",
            advice="Set reports_dir (--reports-dir, ROUTEBOOK_REPORTS_DIR) to the folder that "
            "`routebook pipeline report --out` writes to.",
        )
    return ReportFolder(Path(folder))


FolderOf = Annotated[ReportFolder, Depends(_folder_of)]


@router.get("", summary="List the reports", responses=answers_with(*INPUT, problems.NO_REPORTS))
async def list_reports(
    folder: FolderOf,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many reports at most.")] = 100,
) -> Reports:
    """What lies in the folder of the setting `reports_dir`, newest first."""
    found = await _off_the_loop(folder.newest_first)
    return Reports(reports=[Report.of(one, f"/v1/reports/{one.name}") for one in found[:limit]], total=len(found))


@router.get(
    "/latest",
    summary="Go to the newest report",
    status_code=307,
    response_class=Response,
    responses={307: {"description": "`Location` is the newest."}, **answers_with(_NO_REPORT, problems.NO_REPORTS)},
)
async def show_latest_report(folder: FolderOf) -> Response:
    """A bookmark that stays."""
    found = await _off_the_loop(folder.newest_first)
    if not found:
        raise Problem(_NO_REPORT, "There is no report yet.", advice="Make one with `routebook pipeline report`.")
    # Relative to this path, whatever a proxy has put before it.
    return Response(status_code=307, headers={"Location": found[0].name, "Cache-Control": "no-store"})


@router.get(
    "/{name}",
    summary="Show a report",
    response_class=Response,
    responses={**_SHOWN, **answers_with(*INPUT, _NO_REPORT, problems.NO_REPORTS)},
)
async def show_report(
    name: Annotated[
        str, InPath(description="As the list has it.", examples=["report-default-2026-11-01--2026-11-15.html"])
    ],
    folder: FolderOf,
) -> Response:
    """The file as it is, with headers that let it run and load nothing."""
    page = await _off_the_loop(lambda: folder.read(name))
    if page is None:
        raise Problem(_NO_REPORT, "There is no report of that name.", advice="GET /v1/reports lists those there are.")
    return Response(page, media_type="text/html; charset=utf-8", headers=_HEADERS)


async def _off_the_loop(look: Callable[[], _Found]) -> _Found:
    """A folder may lie on a network, and a lookup does not wait for it."""
    try:
        return await asyncio.to_thread(look)
    except OSError as error:
        # Which folder and why is for the log of whoever set it, not for every caller.
        raise Problem(
            problems.NO_REPORTS,
            "The folder with reports cannot be read.",
            advice="Check the setting reports_dir: is the folder there, and may this worker read it?",
        ) from error
