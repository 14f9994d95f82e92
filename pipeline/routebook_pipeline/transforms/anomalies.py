"""11 `anomalies`: one rule per kind of anomaly; every finding names the versions that prove it.

Late heartbeats and churn spikes are judged per hour (UTC).
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, HOUR_MS, History, Thresholds, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import ANOMALIES
from routebook_pipeline.transforms import capacity, exposure, failovers, failures
from routebook_pipeline.transforms.availability import masterless
from routebook_pipeline.transforms.frames import segments, select_schema, unbroken, version_of
from routebook_pipeline.transforms.heartbeat_gaps import inside, is_late
from routebook_pipeline.transforms.integrity import late_entries
from routebook_pipeline.transforms.route_table import ends_of_writing, timeline
from routebook_pipeline.transforms.seat_states import DOWN, UP, before_end, intervals, seats, starts_inside

SEVERITIES: Final = {
    "flapping": "warning",
    "mass-loss": "critical",
    "headless": "critical",
    "two-masters": "critical",
    "slow-detection": "warning",
    "late-heartbeats": "warning",
    "churn-spike": "warning",
    "skew": "info",
    "read-only": "critical",
    "history": "critical",
}
"""Critical: messages were lost or refused meanwhile, or no other answer can be trusted. Info: nothing is broken."""


def finding(
    found: DataFrame,
    rule: str,
    subject: Column,
    *,
    between: tuple[str, str],
    value: Column,
    threshold: Column,
    versions: Column,
) -> DataFrame:
    return found.select(
        F.lit(rule).alias("rule"),
        F.lit(SEVERITIES[rule]).alias("severity"),
        subject.alias("subject"),
        F.col(between[0]).cast("long").alias("from_ms"),
        F.col(between[1]).cast("long").alias("to_ms"),
        value.cast("double").alias("value"),
        threshold.cast("double").alias("threshold"),
        F.sort_array(versions.cast("array<bigint>")).alias("versions"),
    )


def subject_of(*names: str) -> Column:
    return F.concat_ws("/", *[F.col(name).cast("string") for name in names])


def all_versions() -> Column:
    """Of findings that are told as one: what proves any of them."""
    return F.array_distinct(F.flatten(F.collect_list("versions")))


def none_of() -> Column:
    """A finding about the state of things, or about the pulse: no entry of the history proves it."""
    return F.array().cast("array<bigint>")


_NORMAL: float = 1.4826
"""Times the median absolute deviation: the standard deviation, if it were a normal distribution."""


def late_heartbeats(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    hours = (
        inside(history, window)
        .groupBy("cluster", _hour("to_ms").alias("hour"))
        .agg(
            F.sum("count").alias("number"),
            F.sum(F.when(is_late(thresholds), F.col("count")).otherwise(0)).alias("late"),
        )
        .withColumn("share", F.try_divide("late", "number"))
        .where((F.col("share") > thresholds.late_share) & (F.col("number") >= thresholds.late_minimum))
    )
    return finding(
        _with_bounds(hours),
        "late-heartbeats",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("share"),
        threshold=F.lit(thresholds.late_share),
        versions=none_of(),
    )


def churn_spike(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """Hours that begin in the window, against as many before each; what lies before the first entry counts as quiet."""
    before = thresholds.churn_hours_before
    judged = range(-(-window.start_ms // HOUR_MS), -(-window.end_ms // HOUR_MS))
    moved = _moved_topics(before_end(history.changes, window))
    grid = (
        moved.select("cluster")
        .distinct()
        .withColumn(
            "hour", F.explode(F.sequence(F.lit(judged.start - before), F.lit(max(judged.stop - 1, judged.start))))
        )
        .withColumn("hour", F.col("hour").cast("long"))
    )
    earlier = W.partitionBy("cluster").orderBy("hour").rowsBetween(-before, -1)
    spread = thresholds.churn_spread * _NORMAL * F.col("mad")
    limit = F.when(F.col("mad") > 0, F.col("median") + spread).otherwise(
        thresholds.churn_times_median * F.greatest("median", F.lit(1.0))
    )
    found = (
        grid.join(moved, ["cluster", "hour"], "left")
        .withColumn("number", F.coalesce("number", F.lit(0)))
        .withColumn("usual", F.collect_list("number").over(earlier))
        .where(
            (F.col("hour") >= judged.start)
            & (F.col("hour") < judged.stop)
            & (F.col("number") >= thresholds.churn_minimum)
        )
        .withColumn("median", _median("usual"))
        .withColumn("spreads", F.transform("usual", lambda number: F.abs(number - F.col("median"))))
        .withColumn("mad", _median("spreads"))
        .withColumn("limit", limit)
        .where(F.col("number") > F.col("limit"))
    )
    return finding(
        _with_bounds(found),
        "churn-spike",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("number"),
        threshold=F.col("limit"),
        versions=F.col("versions"),
    )


def _moved_topics(changes: DataFrame) -> DataFrame:
    """`cluster`, `hour`, `number` of topics that were there at one end of the hour only, and the `versions` with which
    they came or went.
    """
    one_more = F.when(F.col("present"), 1).otherwise(-1)
    steps = (
        timeline(changes)
        .where(F.col("present") != F.col("was_present"))
        .groupBy("cluster", "topic", "ord", "ms")
        .agg(F.sum(one_more).alias("step"))
    )
    in_turn = W.partitionBy("cluster", "topic").orderBy("ord")
    hours = (
        steps.withColumn("is_there", F.sum("step").over(in_turn) > 0)
        .groupBy("cluster", "topic", _hour("ms").alias("hour"))
        .agg(F.max("ord").alias("ord"), F.max_by("is_there", "ord").alias("is_there"))
        .withColumn("was_there", F.coalesce(F.lag("is_there").over(in_turn), F.lit(False)))
    )
    return (
        hours.where(F.col("is_there") != F.col("was_there"))
        .groupBy("cluster", "hour")
        .agg(F.count("*").alias("number"), F.collect_set(version_of()).alias("versions"))
    )


def _hour(column: str) -> Column:
    return F.floor(F.col(column) / HOUR_MS)


def _with_bounds(hours: DataFrame) -> DataFrame:
    return hours.withColumns({"from_ms": F.col("hour") * HOUR_MS, "to_ms": (F.col("hour") + 1) * HOUR_MS})


def _median(column: str) -> Column:
    """Of an array; the mean of the two in the middle when their number is even."""
    number = F.size(column)
    low = F.floor((number + 1) / 2).cast("int")
    high = F.floor((number + 2) / 2).cast("int")
    ordered = F.sort_array(column)
    return F.when(number > 0, (F.element_at(ordered, low) + F.element_at(ordered, high)) / 2).otherwise(0.0)


_ALL_OF_IT: Final = 1 << 62


def anomalies(history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> DataFrame:
    rules = (
        _flapping,
        _mass_loss,
        _headless,
        _two_masters,
        _slow_detection,
        late_heartbeats,
        churn_spike,
        _skew,
        _read_only,
        _history,
    )
    return select_schema(
        reduce(DataFrame.unionByName, [rule(history, window, thresholds) for rule in rules]), ANOMALIES
    )


def _flapping(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    return finding(
        failures.episodes(history, window, thresholds).join(_seats(history, window), "seat_key"),
        "flapping",
        subject_of("cluster", "broker", "broker_id"),
        between=("first_ms", "last_ms"),
        value=F.col("number"),
        threshold=F.lit(thresholds.episode_minimum),
        versions=F.col("versions"),
    )


def _mass_loss(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """A loss belongs to those of the sixty seconds up to it. The share is of the seats that were UP just before the
    first of them. Stretches that fire and overlap are one finding.
    """
    states = intervals(history.changes, window, thresholds).join(_seats(history, window), "seat_key")
    # A running count of the cluster's seats that are UP, by `ord`.
    in_turn = W.partitionBy("cluster").orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    step = F.when(F.col("state") == UP, 1).when(F.col("before") == UP, -1).otherwise(0)
    lost = (
        states.withColumn("up_before", F.coalesce(F.sum(step).over(in_turn), F.lit(0)))
        .where((F.col("state") == DOWN) & F.col("unplanned") & (F.col("before") == UP) & starts_inside(window))
        .withColumn("version", version_of())
    )
    recent = W.partitionBy("cluster").orderBy("start_ms").rangeBetween(-thresholds.mass_loss_ms, 0)
    by_time = W.partitionBy("cluster").orderBy("start_ms", "ord")
    number = F.size(F.collect_set("seat_key").over(recent))
    fires = (F.col("number") >= thresholds.mass_loss_minimum) & (F.col("share") >= thresholds.mass_loss_share)
    firing = (
        lost.withColumn("number", number)
        .withColumn("share", F.try_divide("number", F.min_by("up_before", "ord").over(recent)))
        .withColumn("first_ms", F.min("start_ms").over(recent))
        .withColumn("versions", F.collect_set("version").over(recent))
        .where(fires)
        .withColumn("apart", F.when(F.col("first_ms") > F.lag("start_ms").over(by_time), 1).otherwise(0))
        .withColumn("stretch", F.sum("apart").over(by_time))
        .groupBy("cluster", "stretch")
        .agg(
            F.min("first_ms").alias("first_ms"),
            F.max("start_ms").alias("last_ms"),
            F.max("share").alias("share"),
            all_versions().alias("versions"),
        )
    )
    return finding(
        firing,
        "mass-loss",
        subject_of("cluster"),
        between=("first_ms", "last_ms"),
        value=F.col("share"),
        threshold=F.lit(thresholds.mass_loss_share),
        versions=F.col("versions"),
    )


def _headless(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The proof is the entry with which the master went."""
    length = F.col("to_ms") - F.col("from_ms")
    found = masterless(history, window, thresholds).where(length > thresholds.headless_ms)
    downs = (
        intervals(history.changes, window, thresholds)
        .join(_seats(history, window), "seat_key")
        .where((F.col("state") == DOWN) & (F.col("broker_id") == 0))
        .select(
            "group_key", "cluster", "broker", "start_ms", F.coalesce("end_ms", F.lit(_ALL_OF_IT)).alias("end_ms"), "ord"
        )
    )
    proven = found.join(downs, "group_key").where(
        (F.col("start_ms") <= F.col("from_ms")) & (F.col("end_ms") > F.col("from_ms"))
    )
    return finding(
        proven,
        "headless",
        subject_of("cluster", "broker"),
        between=("from_ms", "to_ms"),
        value=length,
        threshold=F.lit(thresholds.headless_ms),
        versions=F.array(version_of()),
    )


def _two_masters(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    in_turn = W.partitionBy("cluster", "broker").orderBy("ms", "version")
    names = ("from_address", "to_address", "ms", "version")
    found = (
        failovers.each(history, window, thresholds)
        .withColumns({f"{name}_before": F.lag(name).over(in_turn) for name in names})
        .where(
            (F.col("to_address") == F.col("from_address_before"))
            & (F.col("from_address") == F.col("to_address_before"))
            & (F.col("ms") - F.col("ms_before") <= thresholds.two_masters_ms)
        )
    )
    return finding(
        found,
        "two-masters",
        subject_of("cluster", "broker"),
        between=("ms_before", "ms"),
        value=F.col("ms") - F.col("ms_before"),
        threshold=F.lit(thresholds.two_masters_ms),
        versions=F.array("version_before", "version"),
    )


def _slow_detection(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    limit = F.col("timeout_ms") + thresholds.slow_detection_ms
    return finding(
        exposure.detections(history, window, thresholds).where(F.col("detection_ms") > limit),
        "slow-detection",
        subject_of("cluster", "broker", "broker_id"),
        between=("since_ms", "ms"),
        value=F.col("detection_ms"),
        threshold=limit,
        versions=F.array("version"),
    )


def _skew(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    found = capacity.by_cluster(history, capacity.midnights(window), thresholds)
    return finding(
        found.where((F.col("peak") > thresholds.skew_peak) & (F.col("groups") >= thresholds.skew_groups)),
        "skew",
        subject_of("cluster"),
        between=("at_ms", "at_ms"),
        value=F.col("peak"),
        threshold=F.lit(thresholds.skew_peak),
        versions=none_of(),
    )


def _read_only(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """ "And had": something said before that a queue of the group can be written to."""
    changes = before_end(history.changes, window)
    keys = ["cluster", "broker"]
    masters = (
        intervals(history.changes, window, thresholds)
        .join(_seats(history, window), "seat_key")
        .where((F.col("state") == UP) & (F.col("broker_id") == 0))
        .select(*keys, "from_ms", "to_ms", F.lit(1).alias("up"), F.lit(0).alias("none"))
    )
    none = ends_of_writing(changes).join(masters.select(*keys).distinct(), "broker")
    spans = none.select(
        *keys,
        F.greatest("ms", F.lit(window.start_ms)).alias("from_ms"),
        F.coalesce("until_ms", F.lit(window.end_ms)).alias("to_ms"),
        F.lit(0).alias("up"),
        F.lit(1).alias("none"),
    )
    both = segments(masters.unionByName(spans), keys, {"up": F.col("up"), "none": F.col("none")})
    length = F.col("to_ms") - F.col("from_ms")
    found = unbroken(both.where((F.col("up") > 0) & (F.col("none") > 0)), keys).where(length > thresholds.read_only_ms)
    last = none.select(*keys, "ms", "ord")
    proven = (
        found.join(last, keys)
        .where(F.col("ms") <= F.col("from_ms"))
        .groupBy(*keys, "from_ms", "to_ms")
        .agg(F.max("ord").alias("ord"))
    )
    return finding(
        proven,
        "read-only",
        subject_of("cluster", "broker"),
        between=("from_ms", "to_ms"),
        value=length,
        threshold=F.lit(thresholds.read_only_ms),
        versions=F.array(version_of()),
    )


def _history(history: History, window: Window, thresholds: Thresholds) -> DataFrame:  # noqa: ARG001 one form for all
    rows = before_end(history.changes, window).where((F.col("row") == 0) & starts_inside(window, "ms"))
    what = (
        F.when(F.col("code") == int(Kind.HOLE), "hole")
        .when(F.col("code") == int(Kind.FORK), "fork")
        .when(F.col("code") == int(Kind.UNREADABLE), "unreadable")
    )
    is_hole = F.col("code") == int(Kind.HOLE)
    marked = (
        rows.withColumn("what", what)
        .where(F.col("what").isNotNull())
        .select(
            "what",
            "ms",
            F.when(is_hole, F.col("to_version") - F.col("from_version") + 1).otherwise(1).alias("number"),
            F.when(is_hole, F.array("from_version", "to_version")).otherwise(F.array("version")).alias("versions"),
            # Each hole and each fork is a finding of its own; entries are summed up.
            F.when(F.col("what") == "unreadable", 0).otherwise(F.col("ord")).alias("apart"),
        )
    )
    late = late_entries(history, window).select(
        F.lit("late").alias("what"),
        "ms",
        F.lit(1).alias("number"),
        F.array("version").alias("versions"),
        F.lit(0).alias("apart"),
    )
    found = (
        marked.unionByName(late)
        .groupBy("what", "apart")
        .agg(
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.sum("number").alias("number"),
            all_versions().alias("versions"),
        )
    )
    return finding(
        found,
        "history",
        subject_of("what"),
        between=("first_ms", "last_ms"),
        value=F.col("number"),
        threshold=F.lit(0),
        versions=F.col("versions"),
    )


def _seats(history: History, window: Window) -> DataFrame:
    return seats(before_end(history.changes, window)).drop("first_ord", "first_ms")
