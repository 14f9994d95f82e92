"""Spark's own notes of its queries, one folder a start.

No query goes on from another's: each begins where the lake is. A checkpoint that is older than the lake would ask for
what may be trimmed by now, one of a history that ended for what never was, and two processes would fight over one. What
earlier ones noted is looked at for one thing only: none may be ahead of the lake.
"""

import json
import re
import secrets
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from routebook_pipeline.lake.folders import Folder, FoundFile
from routebook_pipeline.source.positions import EntryId

KEPT_MS: Final = 24 * 3_600_000
"""Since its last note. Who notes nothing for longer, and yet runs, starts again when something comes."""
_NAME: Final = r"(?P<name>\d+-[0-9a-f]{16})"
_COMMITTED: Final = re.compile(rf"{_NAME}/commits/(?P<batch>\d+)")
_OVER: Final = "over"
"""Name of an empty file: the query has ended."""
_ENDED: Final = re.compile(f"{_NAME}/{_OVER}")


@dataclass(frozen=True)
class Checkpoint:
    folder: Folder
    key: str
    """Of the stream, in Spark's notes."""

    def end_of(self, batch: int) -> EntryId | None:
        """As Spark noted it before the batch began. No data frame says so before it is read."""
        text = self.folder.text(f"offsets/{batch}")
        if text is None:
            return None
        offset: dict[str, str] = json.loads(text.splitlines()[-1])
        return EntryId.parse(offset[self.key])


@dataclass(frozen=True)
class Checkpoints:
    """Of one stream. All of them may be deleted at any time. Their names say in which era of the lake they began."""

    folder: Folder
    key: str

    def new(self, era: int) -> Checkpoint:
        return Checkpoint(self.folder / f"{era}-{secrets.token_hex(8)}", self.key)

    def furthest(self, era: int) -> EntryId | None:
        """How far any of them says that the lake has come. Version 0: the stream was empty."""
        ends = self._ends(self.folder.files())
        return max((end for name, end in ends.items() if _era(name) == era), key=lambda end: end.version, default=None)

    def close(self, own: Checkpoint) -> None:
        """Its query has ended. That is known of nobody else's, so each process says it of its own."""
        own.folder.mark(_OVER)
        self.drop_ended()

    def drop_ended(self) -> None:
        """Among those that ended, only the furthest tells `furthest` anything; by name, where two came as far: whoever
        does this at the same time keeps the same one.
        """
        files = self.folder.files()
        over = [found["name"] for file in files if (found := _ENDED.fullmatch(file.path))]
        ends = self._ends(files)
        reached = {name: (_era(name), ends[name].version if name in ends else -1, name) for name in over}
        for name in sorted(over, key=lambda name: reached[name])[:-1]:
            (self.folder / name).remove()

    def _ends(self, files: list[FoundFile]) -> dict[str, EntryId]:
        """By name. Not of those that nothing was committed of."""
        last: dict[str, int] = defaultdict(int)
        for file in files:
            found = _COMMITTED.fullmatch(file.path)
            if found is not None:
                last[found["name"]] = max(last[found["name"]], int(found["batch"]))
        ends = {name: Checkpoint(self.folder / name, self.key).end_of(batch) for name, batch in last.items()}
        return {name: end for name, end in ends.items() if end is not None}

    def tidy(self) -> None:
        """Removes those of processes that ended."""
        newest: dict[str, int] = defaultdict(int)
        for file in self.folder.files():
            name, in_a_folder, _ = file.path.partition("/")
            # Files right here are those of releases with one checkpoint for all starts.
            if in_a_folder:
                newest[name] = max(newest[name], file.modified_ms)
        for name, noted_ms in newest.items():
            if noted_ms < time.time_ns() // 1_000_000 - KEPT_MS:
                (self.folder / name).remove()


def _era(name: str) -> int:
    return int(name.partition("-")[0])
