"""3 `availability`: how long each seat, group and cluster was up."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import AVAILABILITY_BY_CLUSTER, AVAILABILITY_BY_GROUP, AVAILABILITY_BY_SEAT
from routebook_pipeline.transforms.frames import before_end, join_adjacent, segments, select_schema
from routebook_pipeline.transforms.seat_states import DOWN, UNKNOWN, UP, intervals, seats

LENGTHS = ("up_ms", "unplanned_ms", "planned_ms", "unknown_ms")


def by_seat(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    return select_schema(_with_ratios(_lengths(history, window, thresholds)), AVAILABILITY_BY_SEAT)


def by_group(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    of_seats = _lengths(history, window, thresholds)
    is_master = F.col("broker_id") == 0
    written = of_seats.groupBy("group_key", "cluster", "broker").agg(
        *[F.sum(F.when(is_master, F.col(name))).alias(name) for name in LENGTHS]
    )
    read = _readable(history, window, thresholds)
    readable_names = ("readable_ms", "unreadable_ms", "readable_unknown_ms")
    both = _with_ratios(written.join(read, "group_key", "left").fillna(0, list(readable_names)))
    readable = F.try_divide("readable_ms", F.col("readable_ms") + F.col("unreadable_ms"))
    return select_schema(both.withColumn("readable", readable), AVAILABILITY_BY_GROUP)


def by_cluster(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    of_seats = _with_ratios(_lengths(history, window, thresholds))
    is_master = F.col("broker_id") == 0
    worst = F.min(F.when(is_master & F.col("availability").isNotNull(), F.struct("availability", "broker")))
    clusters = of_seats.groupBy("cluster").agg(
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
    return select_schema(compared.crossJoin(F.broadcast(paused(history, window))), AVAILABILITY_BY_CLUSTER)


def paused(history: History, window: Window) -> DataFrame:
    """One row: `paused_ms`, for how much of the window expiry was paused because no worker could receive heartbeats."""
    spans = (
        before_end(history.changes, window)
        .where((F.col("code") == int(Kind.EXPIRY_PAUSED)) & (F.col("row") == 0))
        .select(
            F.lit(0).alias("all"),
            F.greatest("from_ms", F.lit(window.start_ms)).alias("from_ms"),
            F.least("to_ms", F.lit(window.end_ms)).alias("to_ms"),
        )
    )
    pauses = segments(spans, ["all"], {"number": F.lit(1)}).where(F.col("number") > 0)
    return pauses.agg(F.coalesce(F.sum(F.col("to_ms") - F.col("from_ms")), F.lit(0)).alias("paused_ms"))


def masterless(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """`group_key`, `from_ms`, `to_ms`: the stretches in the window in which seat 0 is DOWN and another seat is UP."""
    is_master = F.col("broker_id") == 0
    counts = {
        "masters_down": (is_master & (F.col("state") == DOWN)).cast("int"),
        "others_up": (~is_master & (F.col("state") == UP)).cast("int"),
    }
    found = segments(_spans(history, window, thresholds), ["group_key"], counts)
    return join_adjacent(found.where((F.col("masters_down") > 0) & (F.col("others_up") > 0)), ["group_key"])


def _lengths(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """How long each seat was in each state."""
    found = (
        intervals(history.changes, window, thresholds)
        .groupBy("seat_key")
        .agg(
            _length(F.col("state") == UP).alias("up_ms"),
            _length((F.col("state") == DOWN) & F.col("unplanned")).alias("unplanned_ms"),
            _length((F.col("state") == DOWN) & ~F.col("unplanned")).alias("planned_ms"),
            _length(F.col("state") == UNKNOWN).alias("unknown_ms"),
        )
    )
    return (
        seats(before_end(history.changes, window))
        .join(found, "seat_key")
        .withColumn("since_ms", F.greatest("first_ms", F.lit(window.start_ms)))
    )


def _length(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("length_ms")).otherwise(F.lit(0)))


def _with_ratios(frame: DataFrame) -> DataFrame:
    counted = F.col("up_ms") + F.col("unplanned_ms")
    return frame.withColumn("availability", F.try_divide("up_ms", counted)).withColumn(
        "availability_all", F.try_divide("up_ms", counted + F.col("planned_ms"))
    )


def _spans(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    known = seats(before_end(history.changes, window)).select("seat_key", "group_key", "broker_id")
    return intervals(history.changes, window, thresholds).join(known, "seat_key")


def _readable(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    counts = {
        name: (F.col("state") == state).cast("int")
        for name, state in (("up", UP), ("down", DOWN), ("unknown", UNKNOWN))
    }
    found = segments(_spans(history, window, thresholds), ["group_key"], counts).withColumn(
        "length_ms", F.col("to_ms") - F.col("from_ms")
    )
    is_up, is_unknown = F.col("up") > 0, F.col("unknown") > 0
    return found.groupBy("group_key").agg(
        _length(is_up).alias("readable_ms"),
        _length(~is_up & ~is_unknown & (F.col("down") > 0)).alias("unreadable_ms"),
        _length(~is_up & is_unknown).alias("readable_unknown_ms"),
    )
