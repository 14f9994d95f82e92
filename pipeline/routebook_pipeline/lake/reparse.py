"""Parses rows again that were kept as raw text: a newer release may know their kind or their format."""

from contextlib import ExitStack
from dataclasses import dataclass

from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import KNOWN_FORMAT, Kind
from routebook_pipeline.lake.parsing import parse
from routebook_pipeline.lake.snapshots import drop_after
from routebook_pipeline.lake.tables import Files, Lake
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt

_RAW_KINDS = (int(Kind.UNKNOWN), int(Kind.UNREADABLE))


@dataclass(frozen=True)
class Reparsed:
    raw: int
    """Number of entries that were raw text."""
    readable: int
    """Number of these that are readable now."""
    first_ms: int | None = None
    """Answers for windows that end after this time may have changed."""
    dropped_snapshots: tuple[str, ...] = ()


def reparse(spark: SparkSession, lake: Lake, *, known_format: int = KNOWN_FORMAT) -> Reparsed:
    """Rewrites only the files with such rows."""
    while True:
        pinned = lake.changes.pin()
        readable = compute.field("readable_rows")
        files = pinned.files.where(readable.is_null() | (readable < compute.field("rows")))
        rows = pinned.read_files(spark, files.paths, pinned.columns)
        with ExitStack() as persisted:
            raw = _persist(rows.where(F.col("code").isin(*_RAW_KINDS) & F.col("raw").isNotNull()), persisted)
            parsed = _persist(_parsed_rows(raw, lake, known_format), persisted)
            result = parsed.where("row = 0").agg(F.count("*").alias("number"), F.min("ms").alias("first_ms")).first()
            number = raw.count()
            if result is None or not result.number:
                return Reparsed(number, 0)
            try:
                _replace(lake, rows, parsed, files)
            except ConcurrentCommitError:
                continue
        return Reparsed(number, result.number, result.first_ms, tuple(drop_after(lake, result.first_ms)))


def _persist(rows: DataFrame, persisted: ExitStack) -> DataFrame:
    """Until `persisted` is closed."""
    persisted.callback(rows.unpersist)
    return rows.persist()


def _parsed_rows(raw: DataFrame, lake: Lake, known_format: int) -> DataFrame:
    """The new rows of the entries that can be parsed now."""
    times = raw.select("era", "version", F.col("ingested_ms").alias("first_ingested_ms"))
    parsed = None
    for (era,) in sorted(raw.select("era").distinct().collect()):
        entries = raw.where(F.col("era") == era).select(
            F.concat_ws("-", "ms", "version").alias("entry_id"), F.unbase64("raw").alias("payload")
        )
        rows = parse(entries, lake.namespace, era, 0, known_format=known_format).where(~F.col("code").isin(*_RAW_KINDS))
        parsed = rows if parsed is None else parsed.unionByName(rows)
    if parsed is None:
        return raw.select(*lake.changes.columns.names).limit(0)
    with_times = parsed.join(F.broadcast(times), ["era", "version"]).withColumn(
        "ingested_ms", F.col("first_ingested_ms")
    )
    return with_times.select(*lake.changes.columns.names)


def _replace(lake: Lake, rows: DataFrame, parsed: DataFrame, files: Files) -> None:
    table = lake.changes
    pinned = table.pin()
    if not set(files.paths) <= set(pinned.files.paths):
        raise ConcurrentCommitError("the files were joined meanwhile")
    replaced = F.broadcast(parsed.select("era", "version").distinct())
    new = rows.join(replaced, ["era", "version"], "left_anti").unionByName(parsed, allowMissingColumns=True)
    with write_attempt(table) as attempt:
        attempt.write(new.withColumn(table.partition, utc_day(F.col("ms"))))
        commit_files(pinned, attempt.added, records={}, removed=files)
