"""Synthetic heartbeat gaps, as one row per gap and as the histograms of the stream `pulse`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.history.synthetic import FIRST_MS, NAMESPACE
from routebook_pipeline.history import MINUTE_MS
from routebook_pipeline.schemas import PULSES

SEATS = 4_000
QUANTILES = (0.5, 0.9, 0.99, 0.999)
_GAPS_A_MINUTE = 2
_COLUMNS = [f"p{place}" for place in range(len(QUANTILES))]

Found = Mapping[int, tuple[float, ...]]
"""Seat -> its percentiles."""


def raw(spark: SparkSession, rows: int) -> DataFrame:
    """Gaps of about 30 s; one in fifty is up to twice as long."""
    drawn = F.abs(F.xxhash64("id"))
    gap_ms = 29_500 + drawn % 1_000 + F.when(drawn % 50 == 0, F.floor(drawn / 50) % 30_000).otherwise(0)
    return spark.range(rows).select((F.col("id") % SEATS).alias("seat"), "id", gap_ms.alias("gap_ms"))


def pulses(gaps: DataFrame) -> DataFrame:
    """The histograms that workers write once a minute (columns: `schemas.PULSES`)."""
    minute = F.floor(F.col("id") / (SEATS * _GAPS_A_MINUTE))
    bucket = F.ceil(8 * F.log2(F.col("gap_ms") / 100)).cast("int")
    counted = gaps.groupBy("seat", minute.alias("minute"), bucket.alias("bucket")).agg(
        F.count("*").alias("count"), F.max("gap_ms").alias("max_ms")
    )
    to_ms = F.lit(FIRST_MS) + (F.col("minute") + 1) * MINUTE_MS
    values = {
        "ns": F.lit(NAMESPACE),
        "era": F.lit(0),
        "version": F.col("minute") + 1,
        "ord": F.col("minute") + 1,
        "ms": to_ms,
        "worker": F.lit("worker-1"),
        "from_ms": to_ms - MINUTE_MS,
        "to_ms": to_ms,
        "cluster": F.lit("cluster-0"),
        "broker": F.concat(F.lit("broker-"), F.col("seat")),
        "broker_id": F.lit(0),
    }
    return counted.select(
        *[values.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name) for field in PULSES.fields]
    )


def with_spark(spark: SparkSession, folder: Path) -> Found:
    percentiles = F.percentile("gap_ms", F.array(*map(F.lit, QUANTILES))).alias("found")
    rows = spark.read.parquet(str(folder)).groupBy("seat").agg(percentiles).collect()
    return {row.seat: tuple(row.found) for row in rows}


def _with_duckdb(folder: Path) -> Found:
    found = duckdb.execute(
        f"SELECT seat, quantile_cont(gap_ms, {list(QUANTILES)}) FROM read_parquet($files) GROUP BY seat",
        {"files": f"{folder}/*.parquet"},
    ).fetchall()
    return {seat: tuple(values) for seat, values in found}


def _with_polars(folder: Path) -> Found:
    percentiles = [
        pl.col("gap_ms").quantile(share, interpolation="linear").alias(name)
        for name, share in zip(_COLUMNS, QUANTILES, strict=True)
    ]
    found = pl.scan_parquet(f"{folder}/*.parquet").group_by("seat").agg(*percentiles).collect()
    return {row[0]: row[1:] for row in found.iter_rows()}


def _with_pandas(folder: Path) -> Found:
    frame = pd.concat([pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])
    found = frame.groupby("seat")["gap_ms"].quantile(list(QUANTILES)).unstack()
    return {int(row[0]): tuple(row[1:]) for row in found.itertuples()}


RIVALS: Mapping[str, Callable[[Path], Found]] = {
    "DuckDB": _with_duckdb,
    "Polars": _with_polars,
    "pandas": _with_pandas,
}


def same(ours: Found, others: Found) -> bool:
    """Whether the percentiles are equal, except for rounding errors of the interpolation."""
    return ours.keys() == others.keys() and all(
        abs(value - other) < 1e-3
        for seat, values in ours.items()
        for value, other in zip(values, others[seat], strict=True)
    )
