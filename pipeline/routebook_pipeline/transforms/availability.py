"""3 `availability`: how long each seat, group and cluster was up."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_NUMBER, DEFAULTS, Days, History, Thresholds, Window
from routebook_pipeline.schemas import AVAILABILITY_BY_CLUSTER, AVAILABILITY_BY_GROUP, AVAILABILITY_BY_SEAT
from routebook_pipeline.transforms.frames import keys_of, segments, select_schema, start_of
from routebook_pipeline.transforms.losses import literal_array, marks_of
from routebook_pipeline.transforms.seat_states import DOWN, SEAT, UNKNOWN, UP
from routebook_pipeline.transforms.timeline import Timeline

LENGTHS = ("up_ms", "unplanned_ms", "planned_ms", "unknown_ms")


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return select_schema(_with_ratios(_lengths(history, window, thresholds)), AVAILABILITY_BY_SEAT, window)


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    """One sweep over the time of each group. The lengths of its master's states are added up on the way."""
    is_master = F.col("broker_id") == 0
    counts = {
        name: (F.col("state") == state).cast("int")
        for name, state in (("up", UP), ("down", DOWN), ("unknown", UNKNOWN))
    }
    sums = {name: F.when(is_master, length) for name, length in _lengths_by_state().items()}
    spans, keys = Timeline.of(history, window, thresholds).intervals, (*keys_of(window), *_GROUP)
    found = segments(spans, keys, counts, sums).withColumn(
        "length_ms", F.coalesce(F.col("to_ms") - F.col("from_ms"), F.lit(0))
    )
    any_up, any_unknown = F.col("up") > 0, F.col("unknown") > 0
    both = _with_ratios(
        found.groupBy(*keys).agg(
            *[F.sum(name).alias(name) for name in LENGTHS],
            _length(any_up).alias("readable_ms"),
            _length(~any_up & ~any_unknown & (F.col("down") > 0)).alias("unreadable_ms"),
            _length(~any_up & any_unknown).alias("readable_unknown_ms"),
        )
    )
    readable = F.try_divide("readable_ms", F.col("readable_ms") + F.col("unreadable_ms"))
    return select_schema(both.withColumn("readable", readable), AVAILABILITY_BY_GROUP, window)


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    of_seats = _with_ratios(_lengths(history, window, thresholds))
    is_master = F.col("broker_id") == 0
    worst = F.min(F.when(is_master & F.col("availability").isNotNull(), F.struct("availability", "broker")))
    clusters = of_seats.groupBy(*keys_of(window), "cluster").agg(
        F.count(F.when(is_master, 1)).alias("groups"),
        *[F.coalesce(F.sum(F.when(is_master, F.col(name))), F.lit(0)).alias(name) for name in LENGTHS],
        worst.alias("worst"),
    )
    compared = (
        _with_ratios(clusters)
        .withColumn("worst_group", F.col("worst.broker"))
        .withColumn("worst_availability", F.col("worst.availability"))
        .withColumn("objective", F.lit(thresholds.objective))
        .withColumn("budget_ms", F.lit(1 - thresholds.objective) * (F.col("up_ms") + F.col("unplanned_ms")))
        .withColumn("spent_ms", F.col("unplanned_ms"))
        .withColumn("met", F.col("availability") >= F.lit(thresholds.objective))
    )
    return select_schema(compared.withColumn("paused_ms", _paused_ms(history, window)), AVAILABILITY_BY_CLUSTER, window)


def _paused_ms(history: History, window: Window) -> Column:
    if not isinstance(window, Days):
        return F.lit(paused_ms(history, window))
    of_days = literal_array(paused_ms(history, one) for one in window.windows)
    return F.get(of_days, F.col(DAY_NUMBER) - F.lit(window.numbers.start))


def paused_ms(history: History, window: Window) -> int:
    """For how much of the window expiry was paused because no worker could receive heartbeats."""
    total, covered_until = 0, window.start_ms
    for start, end in sorted(marks_of(history).before(window.end_ms).pauses):
        start_ms, end_ms = max(start, covered_until), min(end, window.end_ms)
        total += max(0, end_ms - start_ms)
        covered_until = max(covered_until, end_ms)
    return total


_GROUP: Final = ("group_key", "cluster", "broker")


def _lengths(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """How long each seat was in each state. A seat's first evidence begins its first interval."""
    lengths = _lengths_by_state().items()
    return (
        Timeline.of(history, window, thresholds)
        .intervals.groupBy(*keys_of(window), "seat_key", *SEAT)
        .agg(F.min_by("start_ms", "ord").alias("first_ms"), *[F.sum(length).alias(name) for name, length in lengths])
        .withColumn("since_ms", F.greatest("first_ms", start_of(window)))
    )


def _lengths_by_state() -> dict[str, Column]:
    is_down, unplanned = F.col("state") == DOWN, F.col("unplanned")
    conditions = (F.col("state") == UP, is_down & unplanned, is_down & ~unplanned, F.col("state") == UNKNOWN)
    return {
        name: F.when(condition, F.col("length_ms")).otherwise(F.lit(0))
        for name, condition in zip(LENGTHS, conditions, strict=True)
    }


def _length(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("length_ms")).otherwise(F.lit(0)))


def _with_ratios(frame: DataFrame) -> DataFrame:
    counted = F.col("up_ms") + F.col("unplanned_ms")
    return frame.withColumn("availability", F.try_divide("up_ms", counted)).withColumn(
        "availability_all", F.try_divide("up_ms", counted + F.col("planned_ms"))
    )
