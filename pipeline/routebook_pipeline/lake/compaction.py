"""House-keeping of a table's files: small ones joined, unreferenced ones thrown away. Spark is not needed.

The wheel can join files, too, but two that do it at once, each from a version before the other's, both succeed, and
every row is there twice. So the joining is ours, and moves a record (REWRITES) that only one of them can move.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.attempts import OvertakenError, attempt, put
from routebook_pipeline.lake.tables import DataFile, Pinned, Table
from routebook_pipeline.times import day_of

KEPT_HOURS: Final = 7 * 24
"""A question may go on reading the files of the version it pinned, and an attempt takes its time."""
TRIES: Final = 5
LARGE_BYTES: Final = 128 << 20
"""Files of this size are left alone, and none much larger is made."""


@dataclass(frozen=True)
class Compacted:
    joined: int
    into: int


def compact(table: Table) -> Compacted:
    """Joins the files of each closed day. Appends go on meanwhile: neither hinders the other."""
    for _ in range(TRIES):
        pinned = table.pin()
        groups = list(_groups(pinned))
        if not groups:
            return Compacted(0, 0)
        joined = [file for group in groups for file in group]
        try:
            with attempt(table) as made:
                for group in groups:
                    made.join(group, pinned.columns)
                put(pinned, made.added, records={}, removed=joined, same_rows=True)
        except OvertakenError:
            continue
        return Compacted(len(joined), len(made.added))
    raise UnreachableError(
        f"The files of {table.name} at {table.folder.uri} could not be joined: others rewrote them {TRIES} times "
        "meanwhile. Let one command at a time look after a lake."
    )


def _groups(pinned: Pinned) -> Iterator[list[DataFile]]:
    """Two files or more of one day, in the order of everything."""
    until = _first_open_day(pinned)
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in pinned.files:
        if (until is None or file.day < until) and file.size < LARGE_BYTES:
            days[file.day].append(file)
    for files in days.values():
        group: list[DataFile] = []
        for file in files:
            if group and sum(each.size for each in group) + file.size > LARGE_BYTES:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def _first_open_day(pinned: Pinned) -> str | None:
    """Of what follows a stream, the day of its end is still being written. Other tables have none."""
    return None if pinned.observed_ms is None else day_of(pinned.observed_ms)


def vacuum(table: Table, *, kept_hours: int = KEPT_HOURS) -> list[str]:
    """Deletes the files that no version of the last days refers to, and tells which."""
    pinned = table.pin()
    with table.reaching("cleared"):
        removed = pinned.delta.vacuum(
            retention_hours=kept_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
    return sorted(set(removed))
