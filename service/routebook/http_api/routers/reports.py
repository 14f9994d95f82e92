"""The reports that `routebook pipeline report` left in a folder. Everything here blocks: call it off the event loop.

Invariant: only regular files that lie in the folder itself are ever opened. A name that is not one of a report never
reaches the file system, and no symbolic link is followed, so nothing leads out.

Reports that lie ready.

Reports of the pipeline: pages that were written beforehand, listed and handed out as they are.
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
from routebook.http_api.dependencies import LiveSettingsOf
from routebook.http_api.openapi import INPUT, answers_with, not_found
from routebook.http_api.problems import Problem
from routebook.http_api.schemas.table import Answer

MAX_BYTES: Final = 16 * 1024 * 1024
"""A report has some hundred KB; what is larger is none, and is held in memory while it is sent."""

# One path segment that no shell, log or header needs to quote, and no hidden file.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=@-]{0,199}\.html")
_STAMP: Final = r"\d{4}-\d{2}-\d{2}(?:T\d{4}(?:\d{2})?Z)?"
_WINDOW: Final = re.compile(rf"(?P<start>{_STAMP})--(?P<end>{_STAMP})\.html$")
_FORMS: Final = {10: "%Y-%m-%d", 16: "%Y-%m-%dT%H%MZ", 18: "%Y-%m-%dT%H%M%SZ"}
# A pipe with nobody at its other end would hold the thread.
_OPENING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ReportFile:
    name: str
    bytes: int
    modified_ms: int

    @property
    def window_ms(self) -> tuple[int, int] | None:
        """Start and end, when the name ends in `<start>--<end>.html`."""
        found = _WINDOW.search(self.name)
        if found is None:
            return None
        try:
            return _ms(found["start"]), _ms(found["end"])
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ReportFolder:
    path: Path

    def newest_first(self) -> list[ReportFile]:
        """OSError when the folder is not there or may not be read."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) is None:
                    continue
                # Replaced or removed by the next report just now.
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if _is_report(about):
                        found.append(ReportFile(entry.name, about.st_size, about.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda report: (-report.modified_ms, report.name))

    def read(self, name: str) -> bytes | None:
        """None: there is no such report. OSError when the folder or the file may not be read."""
        if _NAME.fullmatch(name) is None:
            return None
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = os.open(name, _OPENING, dir_fd=folder)
        except OSError:
            # Also for a link: what a report is called is nobody's business, where a link leads even less.
            return None
        finally:
            os.close(folder)
        # Asked of what is open, not of what may lie there by now.
        if not _is_report(os.fstat(file)):
            os.close(file)
            return None
        with os.fdopen(file, "rb") as opened:
            return opened.read(MAX_BYTES)


def _is_report(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_size <= MAX_BYTES


def _ms(stamp: str) -> int:
    at = datetime.strptime(stamp, _FORMS[len(stamp)]).replace(tzinfo=UTC)
    return int(at.timestamp()) * 1000


class ReportWindow(Answer):
    from_ms: int = Field(examples=[1793491200000])
    to_ms: int = Field(description="Exclusive.", examples=[1794700800000])


class Report(Answer):
    name: str = Field(examples=["report-default-2026-11-01--2026-11-15.html"])
    bytes: int = Field(examples=[138905])
    modified_ms: int = Field(description="When it was written.", examples=[1794700840000])
    window: ReportWindow | None = Field(description="The time it is about, when its name says so.")
    url: str = Field(
        description="Where to read it, on this host.",
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


class Reports(Answer):
    reports: list[Report] = Field(description="Newest first.")
    total: int = Field(description="How many there are, listed or not.", examples=[1])


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
