"""Rows that were kept as raw text, read again: a newer release may know their kind or their format."""

from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import KNOWN_FORMAT, Kind
from routebook_pipeline.lake.parsing import parse
from routebook_pipeline.lake.snapshots import drop_after
from routebook_pipeline.lake.tables import DataFile, Lake
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt

_KEPT = (int(Kind.UNKNOWN), int(Kind.UNREADABLE))


@dataclass(frozen=True)
class Reparsed:
    raw: int
    readable: int
    """Of these, so many are now."""
    first_ms: int | None = None
    """Answers to windows that end behind it may have changed."""
    dropped_snapshots: tuple[str, ...] = ()


def reparse(spark: SparkSession, lake: Lake, *, known_format: int = KNOWN_FORMAT) -> Reparsed:
    """Only files with such rows are written anew."""
    while True:
        pinned = lake.changes.pin()
        files = [file for file in pinned.files if file.readable_rows is None or file.readable_rows < file.rows]
        rows = pinned.read_files(spark, [file.path for file in files], pinned.columns)
        with ExitStack() as kept:
            raw = _persisted(rows.where(F.col("code").isin(*_KEPT) & F.col("raw").isNotNull()), kept)
            fresh = _persisted(_fresh(raw, lake, known_format), kept)
            told = fresh.where("row = 0").agg(F.count("*").alias("number"), F.min("ms").alias("first_ms")).first()
            number = raw.count()
            if told is None or not told.number:
                return Reparsed(number, 0)
            try:
                _replace(lake, rows, fresh, files)
            except ConcurrentCommitError:
                continue
        return Reparsed(number, told.number, told.first_ms, tuple(drop_after(lake, told.first_ms)))


def _persisted(rows: DataFrame, kept: ExitStack) -> DataFrame:
    """Until `kept` is closed."""
    kept.callback(rows.unpersist)
    return rows.persist()


def _fresh(raw: DataFrame, lake: Lake, known_format: int) -> DataFrame:
    """The rows of those that say more now than that they are kept."""
    kept = raw.select("era", "version", F.col("ingested_ms").alias("noted"))
    fresh = None
    for (era,) in sorted(raw.select("era").distinct().collect()):
        entries = raw.where(F.col("era") == era).select(
            F.concat_ws("-", "ms", "version").alias("entry_id"), F.unbase64("raw").alias("payload")
        )
        rows = parse(entries, lake.namespace, era, 0, known_format=known_format).where(~F.col("code").isin(*_KEPT))
        fresh = rows if fresh is None else fresh.unionByName(rows)
    if fresh is None:
        return raw.select(*lake.changes.columns.names).limit(0)
    with_time = fresh.join(F.broadcast(kept), ["era", "version"]).withColumn("ingested_ms", F.col("noted"))
    return with_time.select(*lake.changes.columns.names)


def _replace(lake: Lake, rows: DataFrame, fresh: DataFrame, files: list[DataFile]) -> None:
    table = lake.changes
    pinned = table.pin()
    if not {file.path for file in files} <= {file.path for file in pinned.files}:
        raise ConcurrentCommitError("the files were joined meanwhile")
    again = F.broadcast(fresh.select("era", "version").distinct())
    new = rows.join(again, ["era", "version"], "left_anti").unionByName(fresh, allowMissingColumns=True)
    with write_attempt(table) as made:
        made.write(new.withColumn(table.partition, utc_day(F.col("ms"))))
        commit_files(pinned, made.added, records={}, removed=files)
