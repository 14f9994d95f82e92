"""All that can be done with a lake beside filling it and asking it: what the command line knows of this package."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from routebook_pipeline.lake import compaction
from routebook_pipeline.lake.checking import Checked, check
from routebook_pipeline.lake.compaction import Compacted
from routebook_pipeline.lake.imports import import_files
from routebook_pipeline.lake.rebase import Rebased, rebase
from routebook_pipeline.lake.reparse import Reparsed, reparse
from routebook_pipeline.lake.snapshots import build_days, closed_days
from routebook_pipeline.lake.tables import Lake, Table

__all__ = [
    "Checked",
    "Compacted",
    "Rebased",
    "Reparsed",
    "check",
    "compact",
    "import_files",
    "rebase",
    "reparse",
    "snapshot",
    "vacuum",
]

Say = Callable[[str], None]


def _tables(lake: Lake) -> list[Table]:
    return [table for table in (lake.changes, lake.pulses, lake.snapshots) if table.exists()]


def _all_tables(lake: Lake) -> list[Table]:
    return [*_tables(lake), *(table for table in lake.kept_answers() if table.exists())]


def compact(lake: Lake, *, say: Say = lambda _: None) -> Compacted:
    """Joins the small files of closed days. Safe beside an ingest. (A kept answer has one file a day.)"""
    joined = into = 0
    for table in _tables(lake):
        done = compaction.compact(table)
        joined, into = joined + done.joined, into + done.into
        say(f"{table.name}: {done.joined} files joined into {done.into}")
    return Compacted(joined, into)


def vacuum(lake: Lake, *, kept_hours: int = compaction.KEPT_HOURS, say: Say = lambda _: None) -> int:
    """Deletes the files that no version of the last days refers to. How many."""
    removed = 0
    for table in _all_tables(lake):
        files = compaction.vacuum(table, kept_hours=kept_hours)
        removed += len(files)
        say(f"{table.name}: {len(files)} files deleted")
    return removed


def snapshot(spark: SparkSession, lake: Lake, *, say: Say = lambda _: None) -> list[str]:
    """Builds those of all closed days that do not stand yet, and tells their days."""
    return build_days(spark, lake, closed_days(lake), say=say)
