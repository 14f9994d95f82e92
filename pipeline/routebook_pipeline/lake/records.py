"""All records of a table in one reading of its log.

The wheel reads the whole log for every record that it is asked for; who wants hundreds of them would read it hundreds
of times. What a checkpoint holds counts, and what was committed behind it.
"""

import json
import re
from typing import Final

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.tables import Pinned

_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.[\w-]+)*\.parquet")
"""Of one file or of several parts."""
_OTHER_FORMS: Final = {"parts", "v2Checkpoint"}
"""Of a checkpoint, whose files have other names."""


def records_of(pinned: Pinned) -> dict[str, int]:
    """Name -> number, as `Pinned.record` has them one by one."""
    log = pinned.table.folder / "_delta_log"
    since, records = _checkpointed(log, pinned.version)
    for version in range(since + 1, pinned.version + 1):
        text = log.text(f"{version:020}.json")
        if text is None:
            raise UnreachableError(
                f"The log of the table {pinned.table.name!r} at {pinned.table.folder.uri} lacks its version {version}. "
                "Restore the table from a backup."
            )
        for line in text.splitlines():
            said = json.loads(line).get("txn")
            if said is not None:
                records[said["appId"]] = said["version"]
    return records


def _checkpointed(log: Folder, newest: int) -> tuple[int, dict[str, int]]:
    """The last version in the last checkpoint, and the records there; -1 without one."""
    version, paths = _told(log, newest) or _found(log, newest)
    records: dict[str, int] = {}
    for path in paths:
        for batch in log.batches(path):
            if "txn" in batch.schema.names:
                records |= {said["appId"]: said["version"] for said in batch.column("txn").to_pylist() if said}
    return version, records


def _told(log: Folder, newest: int) -> tuple[int, list[str]] | None:
    """By the log itself: a log of a month is not listed for it. It may tell of a later one, or of another form."""
    said = json.loads(log.text("_last_checkpoint") or "{}")
    version = said.get("version", newest + 1)
    if version > newest or _OTHER_FORMS & said.keys():
        return None
    return version, [f"{version:020}.checkpoint.parquet"]


def _found(log: Folder, newest: int) -> tuple[int, list[str]]:
    found = [(int(name[1]), name[0]) for file in log.files() if (name := _CHECKPOINT.fullmatch(file.path))]
    version = max((each for each, _ in found if each <= newest), default=-1)
    return version, [path for each, path in found if each == version]
