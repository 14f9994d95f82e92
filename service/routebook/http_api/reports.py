"""The HTML reports that `routebook pipeline report` wrote to a folder: listed, and served unchanged.

Invariant: only regular files directly in that folder are opened. A name that no report can have never reaches the file
system, and symbolic links are not followed, so no request leaves the folder.
"""

import asyncio
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Path as InPath
from pydantic import Field

from routebook.http_api import problems
from routebook.http_api.dependencies import LiveSettingsDep
from routebook.http_api.openapi import INPUT, not_found, problem_responses
from routebook.http_api.problems import Problem
from routebook.http_api.schemas import ResponseBody

MAX_BYTES: Final = 16 * 1024 * 1024
"""A larger file is not a report: those have some hundred KB. A report is in memory while it is sent."""

# One path segment without characters that a shell, log or header must quote; not a hidden file.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=@-]{0,199}\.html")
_STAMP: Final = r"\d{4}-\d{2}-\d{2}(?:T\d{4}(?:\d{2})?Z)?"
_WINDOW: Final = re.compile(rf"(?P<start>{_STAMP})--(?P<end>{_STAMP})\.html$")
_FORMS: Final = {10: "%Y-%m-%d", 16: "%Y-%m-%dT%H%MZ", 18: "%Y-%m-%dT%H%M%SZ"}
# O_NONBLOCK: opening a pipe without a writer would block the thread.
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ReportFile:
    name: str
    bytes: int
    modified_ms: int

    @property
    def window_ms(self) -> tuple[int, int] | None:
        """Start and end of the reported time, when the name ends in `<start>--<end>.html`."""
        found = _WINDOW.search(self.name)
        if found is None:
            return None
        try:
            return _ms(found["start"]), _ms(found["end"])
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ReportFolder:
    """Its methods block, so they run in a thread."""

    path: Path

    def newest_first(self) -> list[ReportFile]:
        """Raises OSError when the folder does not exist or cannot be read."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) is None:
                    continue
                # A report can be replaced or removed at any time.
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if _is_report(status):
                        found.append(ReportFile(entry.name, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda report: (-report.modified_ms, report.name))

    def read(self, name: str) -> bytes | None:
        """Returns None when there is no such report. Raises OSError when the folder or the file cannot be read."""
        if _NAME.fullmatch(name) is None:
            return None
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = os.open(name, _OPEN_FLAGS, dir_fd=folder)
        except OSError:
            # This includes a symbolic link.
            return None
        finally:
            os.close(folder)
        # Checks the open file, which the name may no longer refer to.
        if not _is_report(os.fstat(file)):
            os.close(file)
            return None
        with os.fdopen(file, "rb") as opened:
            return opened.read(MAX_BYTES)


def _is_report(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES


def _ms(stamp: str) -> int:
    at = datetime.strptime(stamp, _FORMS[len(stamp)]).replace(tzinfo=UTC)
    return int(at.timestamp()) * 1000


class ReportWindow(ResponseBody):
    from_ms: int = Field(examples=[1793491200000])
    to_ms: int = Field(description="Exclusive.", examples=[1794700800000])


class Report(ResponseBody):
    name: str = Field(examples=["report-default-2026-11-01--2026-11-15.html"])
    bytes: int = Field(examples=[138905])
    modified_ms: int = Field(description="When it was written, in milliseconds since 1970.", examples=[1794700840000])
    window: ReportWindow | None = Field(description="The reported time, when the file name contains it.")
    url: str = Field(
        description="Path of the report on this host.",
        examples=["/v1/reports/report-default-2026-11-01--2026-11-15.html"],
    )

    @classmethod
    def of(cls, report: ReportFile, url: str) -> "Report":
        window = report.window_ms
        return cls(
            name=report.name,
            bytes=report.bytes,
            modified_ms=report.modified_ms,
            window=ReportWindow(from_ms=window[0], to_ms=window[1]) if window else None,
            url=url,
        )


class Reports(ResponseBody):
    reports: list[Report] = Field(description="Newest first.")
    total: int = Field(description="Number of all reports, listed or not.", examples=[1])


router = APIRouter(tags=["operation"], prefix="/v1/reports")

# A report needs no scripts and loads nothing, so no file of the folder may do either.
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
_PAGE_RESPONSE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The page.", "content": {"text/html": {"schema": {"type": "string"}}}}
}

_Found = TypeVar("_Found")


def _folder_of(live_settings: LiveSettingsDep) -> ReportFolder:
    folder = live_settings.current.reports_dir
    if not folder:
        raise Problem(
            problems.NO_REPORTS,
            "This worker has no report folder.",
            advice="Set reports_dir (--reports-dir, ROUTEBOOK_REPORTS_DIR) to the folder that "
            "`routebook pipeline report --out` writes to.",
        )
    return ReportFolder(Path(folder))


FolderOf = Annotated[ReportFolder, Depends(_folder_of)]


@router.get("", summary="List the reports", responses=problem_responses(*INPUT, problems.NO_REPORTS))
async def list_reports(
    folder: FolderOf,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of reports.")] = 100,
) -> Reports:
    """The reports in the folder of the setting `reports_dir`, newest first."""
    found = await _in_thread(folder.newest_first)
    return Reports(reports=[Report.of(file, f"/v1/reports/{file.name}") for file in found[:limit]], total=len(found))


@router.get(
    "/latest",
    summary="Go to the newest report",
    status_code=307,
    response_class=Response,
    responses={
        307: {"description": "`Location` is the newest report."},
        **problem_responses(_NO_REPORT, problems.NO_REPORTS),
    },
)
async def show_latest_report(folder: FolderOf) -> Response:
    """A stable address for bookmarks."""
    found = await _in_thread(folder.newest_first)
    if not found:
        raise Problem(_NO_REPORT, "There is no report yet.", advice="Write one with `routebook pipeline report`.")
    # Relative to this path, because a proxy may add a prefix.
    return Response(status_code=307, headers={"Location": found[0].name, "Cache-Control": "no-store"})


@router.get(
    "/{name}",
    summary="Show a report",
    response_class=Response,
    responses={**_PAGE_RESPONSE, **problem_responses(*INPUT, _NO_REPORT, problems.NO_REPORTS)},
)
async def show_report(
    name: Annotated[
        str,
        InPath(
            description="Name of the report, from the list.", examples=["report-default-2026-11-01--2026-11-15.html"]
        ),
    ],
    folder: FolderOf,
) -> Response:
    """The file unchanged, with headers that forbid scripts and loading."""
    page = await _in_thread(lambda: folder.read(name))
    if page is None:
        raise Problem(_NO_REPORT, "There is no report of that name.", advice="GET /v1/reports lists all reports.")
    return Response(page, media_type="text/html; charset=utf-8", headers=_HEADERS)


async def _in_thread(read: Callable[[], _Found]) -> _Found:
    """Runs it outside the event loop: the folder may be on a network file system, and lookups must not wait for it."""
    try:
        return await asyncio.to_thread(read)
    except OSError as error:
        # The path and the reason are not for every caller.
        raise Problem(
            problems.NO_REPORTS,
            "The report folder cannot be read.",
            advice="Check the setting reports_dir: the folder must exist and this worker must be able to read it.",
        ) from error
