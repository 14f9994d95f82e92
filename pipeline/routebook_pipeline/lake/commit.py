"""Commits a batch of a stream to its table, exactly once.

A record of the table decides what is new: it is named like the table and holds the `ord` of the last committed version,
H. The commit that adds the rows also moves H, and fails if another commit has moved H since it was read. So every
version is in the table once, whatever the reader repeats or forgets: entries at or below H are dropped, and a batch is
refused unless it starts right after H and has every version up to its end.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import HistoryError, WrongUsageError
from routebook_pipeline.kinds import KNOWN_FORMAT
from routebook_pipeline.lake.parsing import NEWER, PARSERS, Batch, after_version, with_positions
from routebook_pipeline.lake.tables import HISTORY, LAST_MS, OBSERVED, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt
from routebook_pipeline.source.stream import EntryId, StreamEnd

KILL_VARIABLE: Final = "ROUTEBOOK_TEST_KILL_AT"
"""For tests: `<point>:<batch>` kills the process there, like a power cut. They prove that a batch is in the lake once,
wherever the writer dies.
"""


class KillPoint(StrEnum):
    FILES_WRITTEN = "files-written"
    COMMITTED = "committed"
    POSITION_PUBLISHED = "position-published"


def kill_at(point: KillPoint, batch: int) -> None:
    """Kills the process group, with the JVM in it, if the variable names this point. The test that sets the variable
    starts us in a group of our own.
    """
    if os.environ.get(KILL_VARIABLE) == f"{point}:{batch}":
        os.killpg(os.getpgrp(), signal.SIGKILL)


MIN_CORRUPT_ENTRIES: Final = 100
"""A batch of at least this many entries, all of them corrupt, comes from another stream. Entries of a newer format do
not count: they are ours, and are kept to be parsed later.
"""


class DiscontinuityError(HistoryError):
    """The batch does not continue the table: it skips or repeats versions."""

    def __init__(self, table: str, held: int, first: int, last: int, versions: int) -> None:
        super().__init__(
            f"The lake holds {table} up to version {held}, but the new batch has {versions} versions from {first} to "
            f"{last}. It does not continue the lake, so nothing was written. Delete the folder `checkpoints` beside "
            "the tables, which is always safe, and start again."
        )
        self.held, self.first, self.last = held, first, last


@dataclass(frozen=True)
class CommittedBatch:
    era: int
    first: int
    last: int
    entries: int
    holes: int
    """Number of missing versions."""
    unreadable: int
    rows: int
    observed_ms: int
    """Until this time, the stream had nothing after `last`."""


def commit(
    batch: DataFrame,
    table: Table,
    *,
    ingested_ms: int,
    stream_end: StreamEnd | None = None,
    end: EntryId | None = None,
    history: int | None = None,
    known_format: int = KNOWN_FORMAT,
    reached: Callable[[KillPoint], None] = lambda _: None,
) -> CommittedBatch | None:
    """None when the table already has the whole batch.

    `batch`: entries as in `schemas.SOURCE`. `end`: the last position of the batch, even if that entry is lost; without
    it, the last row decides. `stream_end`: the end of the stream when the end of the batch was fixed. `history`: the
    name of its history. `reached` is called at the kill points, for tests.
    """
    while True:
        try:
            return _try_commit(
                batch,
                table.pin(),
                ingested_ms=ingested_ms,
                stream_end=stream_end,
                end=end,
                history=history,
                known_format=known_format,
                reached=reached,
            )
        except ConcurrentCommitError:
            continue


def _try_commit(
    batch: DataFrame,
    pinned: PinnedTable,
    *,
    ingested_ms: int,
    stream_end: StreamEnd | None,
    end: EntryId | None,
    history: int | None,
    known_format: int,
    reached: Callable[[KillPoint], None],
) -> CommittedBatch | None:
    table, held = pinned.table, pinned.position
    parser = PARSERS[table.name]
    era = held.era if held else 0
    entries = with_positions(batch) if held is None else after_version(with_positions(batch), held.version)
    observation = Observation()
    validated = parser.validate(entries, known_format).observe(observation, *_counts())
    rows = parser.to_rows(validated, Batch(table.namespace, era, ingested_ms))
    with write_attempt(table) as attempt:
        attempt.write(rows.withColumn(table.partition, utc_day(F.col("ms"))))
        counts = _with_sum(observation.get)
        if not counts["entries"] and not counts["holes"]:
            attempt.remove()
            return None
        check_continuity(table.name, held, counts)
        _check_same_stream(counts)
        # A hole row has the time of the entry before the hole.
        last_ms = end.ms if end is not None and end.version == counts["last"] else counts["last_ms"]
        committed = CommittedBatch(
            era=era,
            **{name: counts[name] for name in ("first", "last", "entries", "holes", "unreadable")},
            rows=attempt.rows,
            observed_ms=stream_end.now_ms if stream_end and stream_end.version == counts["last"] else last_ms,
        )
        reached(KillPoint.FILES_WRITTEN)
        metadata = {name: getattr(committed, name) for name in ("observed_ms", "entries", "holes", "unreadable")}
        records = {
            table.name: Position(era, committed.last).ord,
            OBSERVED: committed.observed_ms,
            LAST_MS: last_ms,
            **({HISTORY: history} if history is not None else {}),
        }
        commit_files(pinned, attempt.added, records=records, metadata=metadata)
    reached(KillPoint.COMMITTED)
    return committed


def _counts() -> list[Any]:
    """Counted in the pass that writes the files: a second Spark action would read the store twice."""
    hole = F.col("hole")
    versions = F.col("last_version") - F.col("version") + 1
    of_entry = F.when(~hole, F.col("version"))
    of_hole = (F.col("last_version") + F.col("version")).cast("decimal(20,0)") * versions.cast("decimal(18,0)")
    return [
        F.min("version").alias("first"),
        F.max("last_version").alias("last"),
        F.max("ms").alias("last_ms"),
        F.count_if(~hole).alias("entries"),
        F.coalesce(F.sum(F.when(hole, versions)), F.lit(0)).alias("holes"),
        F.count_if(~hole & F.col("reason").isNotNull()).alias("unreadable"),
        F.count_if(~hole & (F.col("reason") != NEWER)).alias("corrupt"),
        # In the sum of all versions, a repeated version and a missing one do not cancel out. It is too large for a
        # BIGINT, and summing decimals takes a fifth of a batch's time. So the versions of entries are summed in two
        # halves; only those of holes, which are few, are summed as decimals.
        F.sum(F.shiftright(of_entry, _HALF_BITS)).alias("upper_halves"),
        F.sum(of_entry.bitwiseAND((1 << _HALF_BITS) - 1)).alias("lower_halves"),
        F.sum(F.when(hole, of_hole)).alias("twice_in_holes"),
    ]


_HALF_BITS: Final = 24
"""A version has at most 48 bits."""


def _with_sum(counts: dict[str, Any]) -> dict[str, Any]:
    of_entries = ((counts["upper_halves"] or 0) << _HALF_BITS) + (counts["lower_halves"] or 0)
    return {**counts, "twice_the_sum": 2 * of_entries + int(counts["twice_in_holes"] or 0)}


def check_continuity(table: str, held: Position | None, counts: dict[str, Any]) -> None:
    """DiscontinuityError unless the batch has each version from H + 1 to its last one exactly once. Without H it may
    start anywhere: earlier entries were trimmed before the lake existed.
    """
    first = held.version + 1 if held else counts["first"]
    length = counts["last"] - first + 1
    versions = counts["entries"] + counts["holes"]
    expected = (first, length, (first + counts["last"]) * length)
    if (counts["first"], versions, counts["twice_the_sum"]) != expected:
        raise DiscontinuityError(table, first - 1, counts["first"], counts["last"], versions)


def _check_same_stream(counts: dict[str, Any]) -> None:
    if counts["entries"] >= MIN_CORRUPT_ENTRIES and counts["corrupt"] == counts["entries"]:
        raise WrongUsageError(
            f"None of the {counts['entries']} entries from version {counts['first']} to {counts['last']} can be read: "
            "Routebook did not write this stream. Check the address of the store and the namespace."
        )
