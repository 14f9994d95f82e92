"""The reports that `routebook pipeline report` left in a folder. Everything here blocks: call it off the event loop.

Invariant: only regular files that lie in the folder itself are ever opened. A name that is not one of a report never
reaches the file system, and no symbolic link is followed, so nothing leads out.
"""

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

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
