"""11 `anomalies`: one rule per kind of anomaly; every finding names the versions that prove it.

Late heartbeats and churn spikes are judged per hour (UTC).
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, ERA_SHIFT, HOUR_MS, Days, History, Thresholds, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import ANOMALIES
from routebook_pipeline.transforms import capacity, exposure, failovers, failures
from routebook_pipeline.transforms.frames import (
    before_end,
    end_of,
    is_between,
    join_adjacent,
    keys_of,
    of_day,
    segments,
    select_schema,
    start_of,
    starts_inside,
    version_of,
)
from routebook_pipeline.transforms.heartbeat_gaps import inside, is_late
from routebook_pipeline.transforms.integrity import late_entries, summary
from routebook_pipeline.transforms.losses import marks_of
from routebook_pipeline.transforms.route_table import (
    losses_of_writability,
    presence_changes,
    writable_totals,
)
from routebook_pipeline.transforms.seat_states import DOWN, UP
from routebook_pipeline.transforms.timeline import Timeline

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
"""Critical: messages were lost or refused, or the other answers cannot be trusted. Info: nothing is broken."""


def finding(
    found: DataFrame,
    window: Window,
    rule: str,
    subject: Column,
    *,
    between: tuple[str, str],
    value: Column,
    threshold: Column,
    versions: Column,
) -> DataFrame:
    return found.select(
        *keys_of(window),
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
    """The versions of all findings that are joined into one."""
    return F.array_distinct(F.flatten(F.collect_list("versions")))


def no_versions() -> Column:
    """No versions: the finding is about a state or about heartbeat gaps, and not about entries."""
    return F.array().cast("array<bigint>")


_DEVIATIONS_PER_MAD: float = 1.4826
"""The standard deviation of a normal distribution, as a multiple of its median absolute deviation."""


def late_heartbeats(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    hours = (
        inside(history, window)
        .groupBy(*keys_of(window), "cluster", _hour("to_ms").alias("hour"))
        .agg(
            F.sum("count").alias("number"),
            F.sum(F.when(is_late(thresholds), F.col("count")).otherwise(0)).alias("late"),
        )
        .withColumn("share", F.try_divide("late", "number"))
        .where((F.col("share") > thresholds.late_share) & (F.col("number") >= thresholds.late_minimum))
    )
    return finding(
        _with_bounds(hours),
        window,
        "late-heartbeats",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("share"),
        threshold=F.lit(thresholds.late_share),
        versions=no_versions(),
    )


def churn_spike(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """Compares each hour that begins in the window with the whole hours before it since the history's first entry."""
    before = thresholds.churn_hours_before
    judged = range(-(-window.start_ms // HOUR_MS), -(-window.end_ms // HOUR_MS))
    moved = _moved_topics(Timeline.of(history, window, thresholds).queues)
    first_ms = summary(history, window).first_ms or 0
    grid = (
        moved.select("cluster")
        .distinct()
        .withColumn(
            "hour", F.explode(F.sequence(F.lit(judged.start - before), F.lit(max(judged.stop - 1, judged.start))))
        )
        .withColumn("hour", F.col("hour").cast("long"))
        .where(F.col("hour") > first_ms // HOUR_MS)
    )
    earlier = W.partitionBy("cluster").orderBy("hour").rowsBetween(-before, -1)
    spread = thresholds.churn_spread * _DEVIATIONS_PER_MAD * F.col("mad")
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
            & (F.size("usual") >= thresholds.churn_hours_minimum)
        )
        .withColumn("median", _median("usual"))
        .withColumn("spreads", F.transform("usual", lambda number: F.abs(number - F.col("median"))))
        .withColumn("mad", _median("spreads"))
        .withColumn("limit", limit)
        .where(F.col("number") > F.col("limit"))
    )
    return finding(
        of_day(_with_bounds(found), window, "from_ms"),
        window,
        "churn-spike",
        subject_of("cluster"),
        between=("from_ms", "to_ms"),
        value=F.col("number"),
        threshold=F.col("limit"),
        versions=F.col("versions"),
    )


def _moved_topics(line: DataFrame) -> DataFrame:
    """`cluster`, `hour`, the `number` of topics that existed either at the start or at the end of the hour but not at
    both, and the `versions` that created or removed them.
    """
    one_more = F.when(F.col("present"), 1).otherwise(-1)
    steps = presence_changes(line).groupBy("cluster", "topic", "ord", "ms").agg(F.sum(one_more).alias("step"))
    in_order = W.partitionBy("cluster", "topic").orderBy("ord")
    hours = (
        steps.withColumn("exists", F.sum("step").over(in_order) > 0)
        .groupBy("cluster", "topic", _hour("ms").alias("hour"))
        .agg(F.max("ord").alias("ord"), F.max_by("exists", "ord").alias("exists"))
        .withColumn("existed", F.coalesce(F.lag("exists").over(in_order), F.lit(False)))
    )
    return (
        hours.where(F.col("exists") != F.col("existed"))
        .groupBy("cluster", "hour")
        .agg(F.count("*").alias("number"), F.collect_set(version_of()).alias("versions"))
    )


def _hour(ms: Column | str) -> Column:
    return F.floor((F.col(ms) if isinstance(ms, str) else ms) / HOUR_MS)


def _with_bounds(hours: DataFrame) -> DataFrame:
    return hours.withColumns({"from_ms": F.col("hour") * HOUR_MS, "to_ms": (F.col("hour") + 1) * HOUR_MS})


def _median(column: str) -> Column:
    """The median of an array; for an even number of values the mean of the two in the middle."""
    number = F.size(column)
    low = F.floor((number + 1) / 2).cast("int")
    high = F.floor((number + 2) / 2).cast("int")
    ordered = F.sort_array(column)
    return F.when(number > 0, (F.element_at(ordered, low) + F.element_at(ordered, high)) / 2).otherwise(0.0)


_FAR_FUTURE_MS: Final = 1 << 62


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
        _history_faults,
    )
    # Five rules are about seats and two about queues.
    Timeline.of(history, window, thresholds).persist()
    return select_schema(
        reduce(DataFrame.unionByName, [rule(history, window, thresholds) for rule in rules]), ANOMALIES, window
    )


def _flapping(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    return finding(
        failures.episodes(history, window, thresholds),
        window,
        "flapping",
        subject_of("cluster", "broker", "broker_id"),
        between=("first_ms", "last_ms"),
        value=F.col("number"),
        threshold=F.lit(thresholds.episode_minimum),
        versions=F.col("versions"),
    )


def _mass_loss(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """Looks at each loss together with the losses of the `mass_loss_ms` before it.

    The share is relative to the seats that were UP just before the first of them. Overlapping stretches that meet the
    thresholds are one finding.
    """
    is_loss = (F.col("state") == DOWN) & F.col("unplanned") & (F.col("before") == UP) & starts_inside(window)
    lost = _with_up_seats(Timeline.of(history, window, thresholds).each_interval, window).where(is_loss)
    # The time is cut into slots, so that the losses of one cluster are more than one task. Each slot also has the
    # losses just before it.
    slot_ms = _SLOT_LENGTHS * max(1, thresholds.mass_loss_ms)
    slots = F.array_distinct(
        F.array(_slot(F.col("start_ms"), slot_ms), _slot(F.col("start_ms") + thresholds.mass_loss_ms, slot_ms))
    )
    keys = [*keys_of(window), "cluster"]
    in_slot = W.partitionBy(*keys, "slot")
    recent = in_slot.orderBy("start_ms").rangeBetween(-thresholds.mass_loss_ms, 0)
    by_time = W.partitionBy(*keys).orderBy("start_ms", "ord")
    fires = (F.col("number") >= thresholds.mass_loss_minimum) & (F.col("share") >= thresholds.mass_loss_share)
    stretches = (
        lost.withColumn("slot", F.explode(slots))
        .withColumn("number", F.size(F.collect_set("seat_key").over(recent)))
        .withColumn("share", F.try_divide("number", F.min_by("up_before", "ord").over(recent)))
        .withColumn("first_ms", F.min("start_ms").over(recent))
        .where((F.col("slot") == _slot(F.col("start_ms"), slot_ms)) & fires)
        .withColumn("begins_stretch", F.when(F.col("first_ms") > F.lag("start_ms").over(by_time), 1).otherwise(0))
        .withColumn("stretch", F.sum("begins_stretch").over(by_time))
        .groupBy(*keys, "stretch")
        .agg(F.min("first_ms").alias("first_ms"), F.max("start_ms").alias("last_ms"), F.max("share").alias("share"))
    )
    of_slot = stretches.withColumn(
        "slot", F.explode(F.sequence(_slot(F.col("first_ms"), slot_ms), _slot(F.col("last_ms"), slot_ms)))
    )
    in_stretch = F.col("start_ms").between(F.col("first_ms"), F.col("last_ms"))
    firing = (
        lost.select(*keys, "start_ms", "ord", _slot(F.col("start_ms"), slot_ms).alias("slot"))
        .join(F.broadcast(of_slot), [*keys, "slot"])
        .where(in_stretch)
        .groupBy(*keys, "stretch", "first_ms", "last_ms", "share")
        .agg(F.collect_list(version_of()).alias("versions"))
    )
    return finding(
        firing,
        window,
        "mass-loss",
        subject_of("cluster"),
        between=("first_ms", "last_ms"),
        value=F.col("share"),
        threshold=F.lit(thresholds.mass_loss_share),
        versions=F.col("versions"),
    )


_SLOT_LENGTHS: Final = 10
"""The length of a slot, as a multiple of the time in which losses count together."""


def _slot(ms: Column, slot_ms: int) -> Column:
    return F.floor(ms / slot_ms)


_BUCKET_BITS: Final = 11
"""Entries of 2,048 versions are summed in one task. A history of ten thousand million has five million sums."""


def _with_up_seats(intervals: DataFrame, window: Window) -> DataFrame:
    """The intervals with `up_before`: the number of the cluster's UP seats just before, by `ord`.

    Running sums within buckets of the history, and over the sums of the earlier buckets: one running sum would be one
    task for each cluster.
    """
    # Over several days, what ended before them is left out: there is no UP for such a DOWN to end.
    has_ended = (F.col("before") == UP) & (F.lit(not isinstance(window, Days)) | is_between(window, "start_ms"))
    step = F.when(F.col("state") == UP, 1).when(has_ended, -1).otherwise(0)
    rows = intervals.withColumns({"step": step, "bucket": F.shiftright("ord", _BUCKET_BITS)})
    earlier_buckets = W.partitionBy("cluster").orderBy("bucket").rowsBetween(W.unboundedPreceding, -1)
    earlier_rows = W.partitionBy("cluster", "bucket").orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
    sums = (
        rows.groupBy("cluster", "bucket")
        .agg(F.sum("step").alias("sum"))
        .select("cluster", "bucket", F.coalesce(F.sum("sum").over(earlier_buckets), F.lit(0)).alias("up_at_start"))
    )
    return (
        rows.withColumn("more", F.coalesce(F.sum("step").over(earlier_rows), F.lit(0)))
        .join(sums, ["cluster", "bucket"])
        .withColumn("up_before", F.col("up_at_start") + F.col("more"))
    )


def _headless(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The finding names the version with which the master was removed."""
    length = F.col("to_ms") - F.col("from_ms")
    return finding(
        failovers.masterless(Timeline.of(history, window, thresholds)).where(length > thresholds.headless_ms),
        window,
        "headless",
        subject_of("cluster", "broker"),
        between=("from_ms", "to_ms"),
        value=length,
        threshold=F.lit(thresholds.headless_ms),
        versions=F.array(version_of()),
    )


def _two_masters(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    in_order = W.partitionBy(*keys_of(window), "cluster", "broker").orderBy("ms", "version")
    names = ("from_address", "to_address", "ms", "version")
    found = (
        failovers.each(history, window, thresholds)
        .withColumns({f"{name}_before": F.lag(name).over(in_order) for name in names})
        .where(
            (F.col("to_address") == F.col("from_address_before"))
            & (F.col("from_address") == F.col("to_address_before"))
            & (F.col("ms") - F.col("ms_before") <= thresholds.two_masters_ms)
        )
    )
    return finding(
        found,
        window,
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
        exposure.detections(Timeline.of(history, window, thresholds)).where(F.col("detection_ms") > limit),
        window,
        "slow-detection",
        subject_of("cluster", "broker", "broker_id"),
        between=("since_ms", "ms"),
        value=F.col("detection_ms"),
        threshold=limit,
        versions=F.array(version_of()),
    )


def _skew(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    found = of_day(capacity.at_times(history, capacity.midnights(window), thresholds), window, "at_ms")
    return finding(
        found.where((F.col("peak") > thresholds.skew_peak) & (F.col("groups") >= thresholds.skew_groups)),
        window,
        "skew",
        subject_of("cluster"),
        between=("at_ms", "at_ms"),
        value=F.col("peak"),
        threshold=F.lit(thresholds.skew_peak),
        versions=no_versions(),
    )


def _read_only(history: History, window: Window, thresholds: Thresholds) -> DataFrame:
    """The master is UP, and no queue of the group is writable, although one was before."""
    timeline = Timeline.of(history, window, thresholds)
    group = ["cluster", "broker"]
    keys = [*keys_of(window), *group]
    masters = timeline.intervals.where((F.col("state") == UP) & (F.col("broker_id") == 0)).select(
        *keys, "from_ms", "to_ms", F.lit(1).alias("up"), F.lit(0).alias("none"), F.lit(None).cast("long").alias("ord")
    )
    none = losses_of_writability(writable_totals(timeline.queues)).join(masters.select(*keys).distinct(), "broker")
    lasts = F.coalesce("until_ms", end_of(window))
    is_in_window = (F.col("ms") < end_of(window)) & (lasts >= start_of(window))
    spans = none.where(is_in_window).select(
        *keys,
        F.greatest("ms", start_of(window)).alias("from_ms"),
        F.least(lasts, end_of(window)).alias("to_ms"),
        F.lit(0).alias("up"),
        F.lit(1).alias("none"),
        "ord",
    )
    counts = {"up": F.col("up"), "none": F.col("none")}
    # Of two losses in one millisecond, the sum is the place of the one that lasts: the other one is empty.
    lasting = F.when(F.col("from_ms") < F.col("to_ms"), F.col("ord"))
    both = segments(masters.unionByName(spans), keys, counts, {"lost_ord": lasting})
    length = F.col("to_ms") - F.col("from_ms")
    last_loss = F.last("lost_ord", ignorenulls=True).over(W.partitionBy(*keys).orderBy("from_ms"))
    found = join_adjacent(
        both.withColumn("ord", last_loss).where((F.col("up") > 0) & (F.col("none") > 0)), keys, ["ord"]
    ).where(length > thresholds.read_only_ms)
    return finding(
        found,
        window,
        "read-only",
        subject_of("cluster", "broker"),
        between=("from_ms", "to_ms"),
        value=length,
        threshold=F.lit(thresholds.read_only_ms),
        versions=F.array(version_of()),
    )


def _history_faults(history: History, window: Window, thresholds: Thresholds) -> DataFrame:  # noqa: ARG001 the signature of all questions
    """Every hole and every fork is a finding of its own; late entries are one finding together, and unreadable ones."""
    session = history.changes.sparkSession
    losses = [
        (
            "hole",
            loss.ms,
            (loss.to_version or 0) - (loss.from_version or 0) + 1,
            [loss.from_version, loss.to_version],
            loss.ord,
        )
        if loss.code == Kind.HOLE
        else ("fork", loss.ms, 1, [loss.ord % ERA_SHIFT], loss.ord)
        for loss in marks_of(history).before(window.end_ms).losses
        if loss.ms >= window.start_ms
    ]
    marked = session.createDataFrame(
        losses, "what STRING, ms BIGINT, number BIGINT, versions ARRAY<BIGINT>, finding BIGINT"
    )
    found = summary(history, window)
    if found.has_unreadable:
        is_unreadable = (F.col("code") == int(Kind.UNREADABLE)) & (F.col("row") == 0)
        rows = before_end(history.changes, window).where(is_unreadable & is_between(window))
        marked = marked.unionByName(_entry_faults("unreadable", rows))
    if found.has_late:
        marked = marked.unionByName(_entry_faults("late", late_entries(history, window)))
    summed = (
        of_day(marked, window)
        .groupBy(*keys_of(window), "what", "finding")
        .agg(
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.sum("number").alias("number"),
            all_versions().alias("versions"),
        )
    )
    return finding(
        summed,
        window,
        "history",
        subject_of("what"),
        between=("first_ms", "last_ms"),
        value=F.col("number"),
        threshold=F.lit(0),
        versions=F.col("versions"),
    )


def _entry_faults(what: str, rows: DataFrame) -> DataFrame:
    return rows.select(
        F.lit(what).alias("what"),
        "ms",
        F.lit(1).cast("long").alias("number"),
        F.array("version").alias("versions"),
        F.lit(0).cast("long").alias("finding"),
    )
