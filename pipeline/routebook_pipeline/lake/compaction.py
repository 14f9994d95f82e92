"""House-keeping of a table's files: small ones joined, unreferenced ones thrown away. Spark is not needed."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.days import day_text
from routebook_pipeline.lake.tables import REWRITES, Pinned, Table

KEPT_HOURS: Final = 7 * 24
"""A question may go on reading the files of the version it pinned, and an attempt takes its time."""
TRIES: Final = 5


@dataclass(frozen=True)
class Compacted:
    joined: int
    into: int


def compact(table: Table) -> Compacted:
    """Joins the files of each closed day. Appends go on meanwhile: neither hinders the other."""
    for _ in range(TRIES):
        pinned = table.pin()
        until = _first_open_day(pinned)
        files = Counter(file.day for file in pinned.files if until is None or file.day < until)
        if all(number == 1 for number in files.values()):
            return Compacted(0, 0)
        # Two of them at once would both join the same files, and every row would be there twice: see REWRITES.
        counted = CommitProperties(app_transactions=[Transaction(REWRITES, (pinned.record(REWRITES) or 0) + 1)])
        days: Any = None if until is None else [(table.partition, "<", until)]
        try:
            done = pinned.delta.optimize.compact(partition_filters=days, commit_properties=counted)
        except CommitFailedError as error:
            if "oncurrent" not in str(error):
                raise
            continue
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"])
    raise UnreachableError(
        f"The files of {table.name} at {table.folder.uri} could not be joined: others rewrote them {TRIES} times "
        "meanwhile. Let one command at a time look after a lake."
    )


def _first_open_day(pinned: Pinned) -> str | None:
    """Of what follows a stream, the day of its end is still being written. Other tables have none."""
    return None if pinned.observed_ms is None else day_text(pinned.observed_ms)


def vacuum(table: Table, *, kept_hours: int = KEPT_HOURS) -> list[str]:
    """Deletes the files that no version of the last days refers to, and tells which."""
    removed = table.pin().delta.vacuum(
        retention_hours=kept_hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return sorted(set(removed))
