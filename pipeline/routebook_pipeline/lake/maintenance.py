"""Maintenance of a lake: small files joined, unreferenced ones deleted, snapshots built, and a check that all is there.

`deltalake` can join files too. But when two of its writers start from the same version, both succeed, and every row is
in the table twice. So this module joins files itself: each such commit changes the record REWRITES, which only one of
two concurrent writers can do.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import compute
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.reading import pin_changes
from routebook_pipeline.lake.snapshots import build_days, closed_days
from routebook_pipeline.lake.tables import DataFile, Lake, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, write_attempt
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms import integrity

KEPT_HOURS: Final = 7 * 24
"""A running question may still read the files of the version that it pinned, and a slow writer may not have committed
its files yet.
"""
TRIES: Final = 5
LARGE_BYTES: Final = 128 << 20
"""Files of this size are not joined, and joined files are hardly larger."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Compacted:
    joined: int
    into: int


def compact(lake: Lake, *, log: Log = lambda _: None) -> Compacted:
    """Joins the small files of closed days. Safe while an ingest runs. (A stored answer has one file for each day.)"""
    joined = into = 0
    for table in _history_tables(lake):
        done = compact_table(table)
        joined, into = joined + done.joined, into + done.into
        if done.joined:
            log(f"{table.name}: {done.joined} files joined into {done.into}")
    return Compacted(joined, into)


def compact_table(table: Table) -> Compacted:
    """Joins the small files of each closed day. Batches can be committed meanwhile."""
    for _ in range(TRIES):
        pinned = table.pin()
        groups = list(_groups_to_join(pinned))
        if not groups:
            return Compacted(0, 0)
        joined = [file for group in groups for file in group]
        try:
            with write_attempt(table) as attempt:
                for group in groups:
                    attempt.join(group, pinned.columns)
                commit_files(pinned, attempt.added, records={}, removed=joined, same_rows=True)
        except ConcurrentCommitError:
            continue
        return Compacted(len(joined), len(attempt.added))
    raise UnreachableError(
        f"The files of {table.name} at {table.folder.uri} could not be joined: other commands rewrote them {TRIES} "
        "times meanwhile. Run one maintenance command at a time on a lake."
    )


def _groups_to_join(pinned: PinnedTable) -> Iterator[list[DataFile]]:
    """Groups of at least two files of one day, in the order of their rows."""
    open_day = _open_day(pinned)
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in pinned.files.where(compute.field("size") < LARGE_BYTES):
        if open_day is None or file.day < open_day:
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


def _open_day(pinned: PinnedTable) -> str | None:
    """The day that the stream has reached, to which rows are still added. None for tables without a stream."""
    return None if pinned.observed_ms is None else day_of(pinned.observed_ms)


def vacuum(lake: Lake, *, kept_hours: int = KEPT_HOURS, log: Log = lambda _: None) -> int:
    """Deletes the files that no version of the last days refers to. Returns how many."""
    deleted = 0
    for table in (*_history_tables(lake), *_answer_tables(lake)):
        files = vacuum_table(table, kept_hours=kept_hours)
        deleted += len(files)
        if files:
            log(f"{table.name}: {len(files)} files deleted")
    return deleted


def vacuum_table(table: Table, *, kept_hours: int = KEPT_HOURS) -> list[str]:
    """Deletes the files that no version of the last days refers to. Returns their paths."""
    pinned = table.pin()
    with table.reaching("cleaned"):
        deleted = pinned.delta.vacuum(
            retention_hours=kept_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
    return sorted(set(deleted))


def _history_tables(lake: Lake) -> list[Table]:
    return [table for table in (lake.changes, lake.pulses, lake.snapshots) if table.exists()]


def _answer_tables(lake: Lake) -> list[Table]:
    return [table for table in lake.stored_answers() if table.exists()]


def snapshot(spark: SparkSession, lake: Lake, *, log: Log = lambda _: None) -> list[str]:
    """Builds the missing and stale snapshots of all closed days. Returns their days."""
    return build_days(spark, lake, closed_days(lake), every_day=True, log=log)


@dataclass(frozen=True)
class Checked:
    eras: list[dict[str, Any]]
    """Answer to the question `integrity`, as in `schemas.INTEGRITY`."""
    rows: int
    problems: list[str]
    """Sentences; none when every version is in the lake exactly once."""

    @property
    def ok(self) -> bool:
        return not self.problems


def check(spark: SparkSession, lake: Lake) -> Checked:
    """Reads all changes, and trusts neither the stream nor snapshots nor records. For the other tables it checks only
    that their files exist (UnreachableError otherwise): there is nothing to compare heartbeat gaps with, and snapshots
    and answers can be computed again.
    """
    changes = pin_changes(lake)
    for table in (lake.pulses, lake.snapshots, *lake.stored_answers()):
        if table.exists():
            table.folder.check_files_exist(table.pin().files.paths)
    rows = changes.read(spark)
    until_ms = changes.observed_ms or 0
    end_ms = max(until_ms, changes.files.highest("last_ms") or 0) + 1
    history = History(rows, spark.createDataFrame([], lake.pulses.columns))
    found = integrity.by_version(history, Window(0, end_ms), until_ms).collect()
    eras = [row.asDict(recursive=True) for row in sorted(found, key=lambda row: row.era)]
    problems = [problem for era in eras for problem in _problems_of_era(era)]
    if doubled := rows.groupBy("era", "version", "row").count().where("count > 1").count():
        problems.append(f"{doubled} rows are in the table more than once")
    totals = rows.agg(F.count("*").alias("rows"), F.max("ord").alias("last")).collect()[0]
    logged = changes.files.rows
    if logged != totals.rows:
        problems.append(f"the table's log counts {logged} rows, but its files have {totals.rows}")
    last_hole = (
        rows.where((F.col("ord") == totals.last) & (F.col("code") == int(Kind.HOLE)))
        .agg(F.max("to_version").alias("to"))
        .collect()[0]
    )
    held = changes.position
    reached = totals.last
    if last_hole.to is not None and held is not None:
        reached = max(reached, Position(held.era, last_hole.to).ord)
    if held is not None and held.ord != reached:
        problems.append(f"the table's record says that it is complete up to {held.ord}, but its last row is {reached}")
    return Checked(eras, totals.rows, problems)


def _problems_of_era(era: dict[str, Any]) -> list[str]:
    name = f"era {era['era']}"
    holes = ", ".join(f"{hole['from_version']} to {hole['to_version']}" for hole in era["holes"])
    problems = []
    if era["last_version"] is not None:
        span = era["last_version"] - era["first_version"] + 1
        if era["entries"] + era["missing"] != span:
            versions = era["entries"] + era["missing"]
            problems.append(f"{name}: {versions} versions, but {span} from the first to the last")
    if era["duplicates"]:
        problems.append(f"{name}: {era['duplicates']} versions are in the table twice")
    if holes:
        problems.append(f"{name}: versions {holes} were lost before they were read")
    if era["forks"]:
        problems.append(f"{name}: began with another history")
    if era["unreadable"]:
        problems.append(f"{name}: not readable: {era['unreadable']}")
    return problems
