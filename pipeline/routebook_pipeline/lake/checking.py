"""Is the lake whole? Reads all changes: no stream, no snapshot and no record is believed. Of what else is there, the
files are looked for: heartbeats cannot be checked against anything, and the rest can be made again.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.reading import filled
from routebook_pipeline.lake.tables import Lake, Place
from routebook_pipeline.transforms import integrity


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
    held = changes.place
    reached = seen.last if last.to is None or held is None else max(seen.last, Place(held.era, last.to).ord)
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
