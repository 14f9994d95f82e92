"""Operations on data frames that many questions use: windows, the columns of an answer, and counts over time spans."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import StructType

from routebook_pipeline.history import DAY_MS, DAY_NUMBER, ERA_SHIFT, Days, Window


def before_end(rows: DataFrame, window: Window) -> DataFrame:
    """Drops entries at or after the end of the window, so that the answer for a past window never changes."""
    return rows.where(F.col("ms") < F.lit(window.end_ms))


def keys_of(window: Window) -> tuple[str, ...]:
    """What every frame is grouped by besides the keys of its question."""
    return (DAY_NUMBER,) if isinstance(window, Days) else ()


def start_of(window: Window) -> Column:
    """The start of the window of a row."""
    return F.col(DAY_NUMBER) * F.lit(DAY_MS) if isinstance(window, Days) else F.lit(window.start_ms)


def end_of(window: Window) -> Column:
    """The end of the window of a row."""
    end = F.lit(window.end_ms)
    return F.least((F.col(DAY_NUMBER) + 1) * F.lit(DAY_MS), end) if isinstance(window, Days) else end


def starts_inside(window: Window, column: str = "start_ms") -> Column:
    return (F.col(column) >= start_of(window)) & (F.col(column) < end_of(window))


def is_between(window: Window, column: str = "ms") -> Column:
    """Whether the time lies in any of the windows."""
    return (F.col(column) >= F.lit(window.start_ms)) & (F.col(column) < F.lit(window.end_ms))


def of_day(rows: DataFrame, window: Window, column: str = "ms") -> DataFrame:
    """Rows that belong to one instant, with the day of that instant if the window is several days."""
    return rows.withColumn(DAY_NUMBER, F.floor(F.col(column) / DAY_MS)) if isinstance(window, Days) else rows


def select_schema(frame: DataFrame, schema: StructType, window: Window | None = None) -> DataFrame:
    """Selects exactly these columns, in this order and with these types: the last step of every answer. If `window` is
    several days, the number of the day comes first.
    """
    keys = [] if window is None else [F.col(name).cast("long").alias(name) for name in keys_of(window)]
    return frame.select(keys + [F.col(field.name).cast(field.dataType).alias(field.name) for field in schema.fields])


def version_of(ord_column: str = "ord") -> Column:
    """The version, within its era, of an `ord`."""
    return F.col(ord_column).bitwiseAND(F.lit(ERA_SHIFT - 1))


def one_if(condition: Column) -> Column:
    """1 where the condition holds and 0 where it does not or is null, so that it can be summed."""
    return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("long")


def segments(
    spans: DataFrame, keys: Sequence[str], counts: Mapping[str, Column], sums: Mapping[str, Column] | None = None
) -> DataFrame:
    """Cuts time wherever a span [`from_ms`, `to_ms`) of the same key begins or ends.

    Every segment has `from_ms`, `to_ms` and each count: the sum of its column over the spans that cover the segment.
    The last one of a key has no end, and is covered by no span. `sums`: added up over the spans that begin where the
    segment begins; an empty span counts here, too.
    """
    # +1 where a span begins and -1 where it ends; the edges at one instant are summed before the running sum.
    sums = sums or {}
    is_empty = F.col("from_ms") >= F.col("to_ms")
    edges = (
        spans.select(
            *keys,
            "from_ms",
            "to_ms",
            *[column.cast("long").alias(name) for name, column in (*counts.items(), *sums.items())],
            F.explode(F.when(is_empty, F.array(F.lit(0))).otherwise(F.array(F.lit(1), F.lit(-1)))).alias("step"),
        )
        .withColumn("edge", F.when(F.col("step") == -1, F.col("to_ms")).otherwise(F.col("from_ms")))
        .groupBy(*keys, "edge")
        .agg(
            *[F.sum(F.col(name) * F.col("step")).alias(name) for name in counts],
            *[F.sum(F.when(F.col("step") >= 0, F.col(name))).alias(name) for name in sums],
        )
    )
    by_time = W.partitionBy(*keys).orderBy("edge")
    return edges.select(
        *keys,
        F.col("edge").alias("from_ms"),
        F.lead("edge").over(by_time).alias("to_ms"),
        *[F.sum(name).over(by_time).alias(name) for name in counts],
        *sums,
    )


def join_adjacent(found: DataFrame, keys: Sequence[str], kept: Sequence[str] = ()) -> DataFrame:
    """Joins segments that touch into one. The columns `kept` have the values of its first segment."""
    by_time = W.partitionBy(*keys).orderBy("from_ms")
    is_first = F.lag("to_ms").over(by_time).isNull() | (F.lag("to_ms").over(by_time) < F.col("from_ms"))
    run = F.sum(F.when(F.col("is_first"), 1).otherwise(0)).over(by_time)
    return (
        found.withColumn("is_first", is_first)
        .withColumn("run", run)
        .groupBy(*keys, "run")
        .agg(
            F.min("from_ms").alias("from_ms"),
            F.max("to_ms").alias("to_ms"),
            *[F.min_by(name, "from_ms").alias(name) for name in kept],
        )
        .drop("run")
    )
