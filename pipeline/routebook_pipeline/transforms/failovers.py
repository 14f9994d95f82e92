"""10 `failovers`: when another address became the master of a group."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, Days, History, Thresholds, Window
from routebook_pipeline.schemas import FAILOVERS, FAILOVERS_BY_GROUP
from routebook_pipeline.transforms.frames import join_adjacent, keys_of, of_day, segments, select_schema, version_of
from routebook_pipeline.transforms.seat_states import DOWN, UP
from routebook_pipeline.transforms.timeline import Timeline

_GROUP: Final = ("group_key", "cluster", "broker")


def each(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    timeline = Timeline.of(history, window, thresholds)
    found = of_day(timeline.evidence.where("is_failover"), window)
    return select_schema(
        found.withColumns({"version": version_of(), "planned": F.col("gap_ms") == 0, "to_address": F.col("addr")}),
        FAILOVERS,
        window,
    )


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    """One sweep over the time of each group. The first interval of its master carries the sums of all failovers."""
    timeline = Timeline.of(history, window, thresholds)
    if isinstance(window, Days):
        return _by_group_and_day(timeline, window)
    gap_ms = F.when(F.col("is_failover"), F.col("gap_ms"))
    of_seat = W.partitionBy("seat_key")
    totals = {
        "failovers": F.count(gap_ms).over(of_seat),
        "planned": F.count(F.when(gap_ms == 0, 1)).over(of_seat),
        "gap_ms": F.sum(gap_ms).over(of_seat),
        "longest_gap_ms": F.max(gap_ms).over(of_seat),
    }
    spans = timeline.intervals_of(timeline.evidence.withColumns(totals), totals)
    is_first = _is_master() & F.col("before").isNull()
    sums = {name: F.when(is_first, F.col(name)) for name in totals}
    length = F.when(_is_masterless(), F.col("to_ms") - F.col("from_ms"))
    found = (
        segments(spans, _GROUP, _counts(), sums)
        .groupBy(*_GROUP)
        .agg(*[F.sum(name).alias(name) for name in totals], F.sum(length).alias("headless_ms"))
        .fillna(0)
        .where((F.col("failovers") > 0) | (F.col("headless_ms") > 0))
    )
    return select_schema(found, FAILOVERS_BY_GROUP)


def _by_group_and_day(timeline: Timeline, days: Days) -> DataFrame:
    """The failovers and the sweep apart. This reads the evidence twice, which questions over days keep in memory."""
    keys = [*keys_of(days), *_GROUP]
    sums = (
        of_day(timeline.evidence.where("is_failover"), days)
        .groupBy(*keys)
        .agg(
            F.count("*").alias("failovers"),
            F.count_if(F.col("gap_ms") == 0).alias("planned"),
            F.sum("gap_ms").alias("gap_ms"),
            F.max("gap_ms").alias("longest_gap_ms"),
        )
    )
    headless = (
        segments(timeline.intervals, keys, _counts())
        .where(_is_masterless())
        .groupBy(*keys)
        .agg(F.sum(F.col("to_ms") - F.col("from_ms")).alias("headless_ms"))
    )
    both = sums.unionByName(headless, allowMissingColumns=True)
    values = [name for name in both.columns if name not in keys]
    found = both.groupBy(*keys).agg(*[F.max(name).alias(name) for name in values]).fillna(0)
    return select_schema(found.where("failovers > 0 OR headless_ms > 0"), FAILOVERS_BY_GROUP, days)


def masterless(timeline: Timeline) -> DataFrame:
    """The group, `from_ms`, `to_ms`: the stretches in the window in which seat 0 is DOWN and another seat is UP; `ord`:
    the entry with which the master went down.
    """
    begins_down = _is_master() & (F.col("state") == DOWN) & (F.col("from_ms") < F.col("to_ms"))
    # At most one DOWN of a seat begins at one instant and lasts, so the sum is its `ord`.
    keys = (*keys_of(timeline.window), *_GROUP)
    down_ord = F.last("down_ord", ignorenulls=True).over(W.partitionBy(*keys).orderBy("from_ms"))
    found = (
        segments(timeline.intervals, keys, _counts(), {"down_ord": F.when(begins_down, F.col("ord"))})
        .withColumn("ord", down_ord)
        .where(_is_masterless())
    )
    return join_adjacent(found, keys, ["ord"])


def _is_master() -> Column:
    return F.col("broker_id") == 0


def _counts() -> dict[str, Column]:
    return {
        "masters_down": (_is_master() & (F.col("state") == DOWN)).cast("int"),
        "others_up": (~_is_master() & (F.col("state") == UP)).cast("int"),
    }


def _is_masterless() -> Column:
    return (F.col("masters_down") > 0) & (F.col("others_up") > 0)
