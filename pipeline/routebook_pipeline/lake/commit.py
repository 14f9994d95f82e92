"""Where a test may end the process, as a power cut would: `ROUTEBOOK_TEST_KILL_AT=<point>:<batch>`.

Proves that a batch is in the lake once, wherever the writer died. Does nothing without the variable.

A batch of the stream into its table, exactly once.

What is new is decided by the table's own record: the transaction named like the table, an `ord`, H. It moves in the
same commit that adds the rows, and only from the state that was looked at. So whatever the reader repeats, forgets or
does twice, every version is there once: what ends at or below H is left out, and a batch that does not begin right
behind H, or has not exactly the versions up to its end, is refused.
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
from routebook_pipeline.lake.parsing import CHANGES_FORM, NEWER, PULSES_FORM, Batch, Form, above, located
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt
from routebook_pipeline.source.stream import EntryId, StreamEnd

KILL_VARIABLE: Final = "ROUTEBOOK_TEST_KILL_AT"


class KillPoint(StrEnum):
    FILES_WRITTEN = "files-written"
    COMMITTED = "committed"
    PLACE_PUBLISHED = "place-published"


def kill_at(point: KillPoint, batch: int) -> None:
    """Ends the whole process group (the JVM is in it) when this is the place. Whoever sets the variable starts us in a
    group of our own.
    """
    if os.environ.get(KILL_VARIABLE) == f"{point}:{batch}":
        os.killpg(os.getpgrp(), signal.SIGKILL)


FORMS: Final = {"changes": CHANGES_FORM, "pulses": PULSES_FORM}
WRONG_STREAM_ENTRIES: Final = 100
"""A batch of so many entries of which none is readable is no bad luck: it is another stream. One of a newer format is
ours; it is kept, to be read again later.
"""


class NotTheNextError(HistoryError):
    """A batch that leaves out, repeats or jumps."""

    def __init__(self, table: str, held: int, first: int, last: int, versions: int) -> None:
        super().__init__(
            f"The lake holds {table} up to version {held}, and what was to be added has {versions} versions from "
            f"{first} to {last}: it does not continue the lake, so nothing was written. Delete the folder "
            "`checkpoints` beside the tables, which is always safe, and start again."
        )
        self.held, self.first, self.last = held, first, last


@dataclass(frozen=True)
class CommittedBatch:
    era: int
    first: int
    last: int
    entries: int
    holes: int
    """Versions that are missing."""
    unreadable: int
    rows: int
    observed_ms: int
    """Until then, nothing followed `last`."""


def commit(
    batch: DataFrame,
    table: Table,
    *,
    ingested_ms: int,
    stream_end: StreamEnd | None = None,
    end: EntryId | None = None,
    known_format: int = KNOWN_FORMAT,
    reached: Callable[[KillPoint], None] = lambda _: None,
) -> CommittedBatch | None:
    """`batch`: entries as `schemas.SOURCE`. `end`: where it ends in the stream, whether that entry could be read or is
    lost; without it, where the last row says. None when the table holds all of it already.
    """
    while True:
        try:
            return _try(
                batch,
                table.pin(),
                ingested_ms=ingested_ms,
                stream_end=stream_end,
                end=end,
                known_format=known_format,
                reached=reached,
            )
        except ConcurrentCommitError:
            continue


def _try(
    batch: DataFrame,
    pinned: PinnedTable,
    *,
    ingested_ms: int,
    stream_end: StreamEnd | None,
    end: EntryId | None,
    known_format: int,
    reached: Callable[[KillPoint], None],
) -> CommittedBatch | None:
    table, held = pinned.table, pinned.position
    form: Form = FORMS[table.name]
    era = held.era if held else 0
    entries = located(batch) if held is None else above(located(batch), held.version)
    seen = Observation()
    judged = form.judged(entries, known_format).observe(seen, *_counts())
    rows = form.rows(judged, Batch(table.namespace, era, ingested_ms))
    with write_attempt(table) as made:
        made.write(rows.withColumn(table.partition, utc_day(F.col("ms"))))
        found = _with_sum(seen.get)
        if not found["entries"] and not found["holes"]:
            made.remove()
            return None
        check_it_continues(table.name, held, found)
        _check_it_is_ours(found)
        # A row that stands for lost versions has the time of what was before them.
        last_ms = end.ms if end is not None and end.version == found["last"] else found["last_ms"]
        followed = stream_end is None or stream_end.version != found["last"]
        done = CommittedBatch(
            era=era,
            **{name: found[name] for name in ("first", "last", "entries", "holes", "unreadable")},
            rows=made.rows,
            observed_ms=last_ms if followed or stream_end is None else stream_end.now_ms,
        )
        reached(KillPoint.FILES_WRITTEN)
        told = {name: getattr(done, name) for name in ("observed_ms", "entries", "holes", "unreadable")}
        records = {table.name: Position(era, done.last).ord, OBSERVED: done.observed_ms, LAST_MS: last_ms}
        commit_files(pinned, made.added, records=records, metadata=told)
    reached(KillPoint.COMMITTED)
    return done


def _counts() -> list[Any]:
    """All from the pass that writes: a second action would read the store twice."""
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
        F.count_if(~hole & (F.col("reason") != NEWER)).alias("spoilt"),
        # The sum of the versions: one that came twice and one that is missing do not cancel out. It is larger than a
        # BIGINT holds, and a sum of decimals takes a fifth of the time of a batch: so in two halves, and in decimals
        # what is in holes, of which there are few.
        F.sum(F.shiftright(of_entry, _HALF_BITS)).alias("upper_halves"),
        F.sum(of_entry.bitwiseAND((1 << _HALF_BITS) - 1)).alias("lower_halves"),
        F.sum(F.when(hole, of_hole)).alias("twice_in_holes"),
    ]


_HALF_BITS: Final = 24
"""Of a version, which has 48 at most."""


def _with_sum(found: dict[str, Any]) -> dict[str, Any]:
    of_entries = ((found["upper_halves"] or 0) << _HALF_BITS) + (found["lower_halves"] or 0)
    return {**found, "twice_the_sum": 2 * of_entries + int(found["twice_in_holes"] or 0)}


def check_it_continues(table: str, held: Position | None, found: dict[str, Any]) -> None:
    """NotTheNextError unless the batch has each version from right behind H to its last one exactly once. Without H it
    may begin anywhere: what the store threw away before anybody read it belongs to nobody.
    """
    begins = held.version + 1 if held else found["first"]
    length = found["last"] - begins + 1
    versions = found["entries"] + found["holes"]
    expected = (begins, length, (begins + found["last"]) * length)
    if (found["first"], versions, found["twice_the_sum"]) != expected:
        raise NotTheNextError(table, begins - 1, found["first"], found["last"], versions)


def _check_it_is_ours(found: dict[str, Any]) -> None:
    if found["entries"] >= WRONG_STREAM_ENTRIES and found["spoilt"] == found["entries"]:
        raise WrongUsageError(
            f"None of the {found['entries']} entries from version {found['first']} to {found['last']} can be read: "
            "this is no stream written by Routebook. Look at the address of the store and at the namespace."
        )
