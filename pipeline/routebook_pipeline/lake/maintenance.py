"""House-keeping of a table's files: small ones joined, unreferenced ones thrown away. Spark is not needed.

The wheel can join files, too, but two that do it at once, each from a version before the other's, both succeed, and
every row is there twice. So the joining is ours, and moves a record (REWRITES) that only one of them can move.

All that can be done with a lake beside filling it and asking it: what the command line knows of this package.

Is the lake whole? Reads all changes: no stream, no snapshot and no record is believed. Of what else is there, the
files are looked for: heartbeats cannot be checked against anything, and the rest can be made again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.reading import filled
from routebook_pipeline.lake.snapshots import build_days, closed_days
from routebook_pipeline.lake.tables import DataFile, Lake, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, write_attempt
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms import integrity

KEPT_HOURS: Final = 7 * 24
"""A question may go on reading the files of the version it pinned, and an attempt takes its time."""
TRIES: Final = 5
LARGE_BYTES: Final = 128 << 20
"""Files of this size are left alone, and none much larger is made."""


@dataclass(frozen=True)
class Compacted:
    joined: int
    into: int


def compact_table(table: Table) -> Compacted:
    """Joins the files of each closed day. Appends go on meanwhile: neither hinders the other."""
    for _ in range(TRIES):
        pinned = table.pin()
        groups = list(_groups(pinned))
        if not groups:
            return Compacted(0, 0)
        joined = [file for group in groups for file in group]
        try:
            with write_attempt(table) as made:
                for group in groups:
                    made.join(group, pinned.columns)
                commit_files(pinned, made.added, records={}, removed=joined, same_rows=True)
        except ConcurrentCommitError:
            continue
        return Compacted(len(joined), len(made.added))
    raise UnreachableError(
        f"The files of {table.name} at {table.folder.uri} could not be joined: others rewrote them {TRIES} times "
        "meanwhile. Let one command at a time look after a lake."
    )


def _groups(pinned: PinnedTable) -> Iterator[list[DataFile]]:
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


def _first_open_day(pinned: PinnedTable) -> str | None:
    """Of what follows a stream, the day of its end is still being written. Other tables have none."""
    return None if pinned.observed_ms is None else day_of(pinned.observed_ms)


def vacuum_table(table: Table, *, kept_hours: int = KEPT_HOURS) -> list[str]:
    """Deletes the files that no version of the last days refers to, and tells which."""
    pinned = table.pin()
    with table.reaching("cleared"):
        removed = pinned.delta.vacuum(
            retention_hours=kept_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
    return sorted(set(removed))


Log = Callable[[str], None]


def _tables(lake: Lake) -> list[Table]:
    return [table for table in (lake.changes, lake.pulses, lake.snapshots) if table.exists()]


def _all_tables(lake: Lake) -> list[Table]:
    return [*_tables(lake), *(table for table in lake.kept_answers() if table.exists())]


def compact(lake: Lake, *, log: Log = lambda _: None) -> Compacted:
    """Joins the small files of closed days. Safe beside an ingest. (A kept answer has one file a day.)"""
    joined = into = 0
    for table in _tables(lake):
        done = compact_table(table)
        joined, into = joined + done.joined, into + done.into
        log(f"{table.name}: {done.joined} files joined into {done.into}")
    return Compacted(joined, into)


def vacuum(lake: Lake, *, kept_hours: int = KEPT_HOURS, log: Log = lambda _: None) -> int:
    """Deletes the files that no version of the last days refers to. How many."""
    removed = 0
    for table in _all_tables(lake):
        files = vacuum_table(table, kept_hours=kept_hours)
        removed += len(files)
        log(f"{table.name}: {len(files)} files deleted")
    return removed


def snapshot(spark: SparkSession, lake: Lake, *, log: Log = lambda _: None) -> list[str]:
    """Builds those of all closed days that do not stand yet, and tells their days."""
    return build_days(spark, lake, closed_days(lake), log=log)


@dataclass(frozen=True)
class Checked:
    eras: list[dict[str, Any]]
    """Question 12, as `shapes.INTEGRITY`."""
    rows: int
    problems: list[str]
    """In words; none: the lake is whole, and every version is in it once."""

    @property
    def ok(self) -> bool:
        return not self.problems


def check(spark: SparkSession, lake: Lake) -> Checked:
    """UnreachableError when a file of any table is missing."""
    changes = filled(lake)
    for table in (lake.pulses, lake.snapshots, *lake.kept_answers()):
        if table.exists():
            table.folder.check_for([file.path for file in table.pin().files])
    rows = changes.read(spark)
    until_ms = changes.observed_ms or 0
    end_ms = max(until_ms, *(file.last_ms or 0 for file in changes.files)) + 1
    history = History(rows, spark.createDataFrame([], lake.pulses.columns))
    found = integrity.by_era(history, Window(0, end_ms), until_ms).collect()
    eras = [row.asDict(recursive=True) for row in sorted(found, key=lambda row: row.era)]
    doubled = rows.groupBy("era", "version", "row").count().where("count > 1")
    seen = rows.agg(F.count("*").alias("rows"), F.max("ord").alias("last")).collect()[0]
    last = (
        rows.where((F.col("ord") == seen.last) & (F.col("code") == int(Kind.HOLE)))
        .agg(F.max("to_version").alias("to"))
        .collect()[0]
    )
    problems = [problem for era in eras for problem in _problems(era)]
    if number := doubled.count():
        problems.append(f"{number} rows are there more than once")
    told = sum(file.rows for file in changes.files)
    if told != seen.rows:
        problems.append(f"the log tells of {told} rows, and the files have {seen.rows}")
    held = changes.position
    reached = seen.last if last.to is None or held is None else max(seen.last, Position(held.era, last.to).ord)
    if held is not None and held.ord != reached:
        problems.append(f"the record says that everything up to {held.ord} is there, and the last row is at {reached}")
    return Checked(eras, seen.rows, problems)


def _problems(era: dict[str, Any]) -> list[str]:
    name = f"era {era['era']}"
    holes = ", ".join(f"{hole['from_version']} to {hole['to_version']}" for hole in era["holes"])
    problems = []
    if era["last_version"] is not None:
        span = era["last_version"] - era["first_version"] + 1
        if era["entries"] + era["missing"] != span:
            versions = era["entries"] + era["missing"]
            problems.append(f"{name}: {versions} versions, but {span} from the first to the last")
    if era["duplicates"]:
        problems.append(f"{name}: {era['duplicates']} versions are there twice")
    if holes:
        problems.append(f"{name}: versions {holes} were lost before they were read")
    if era["forks"]:
        problems.append(f"{name}: began with another history")
    if era["unreadable"]:
        problems.append(f"{name}: not readable: {era['unreadable']}")
    return problems
