"""13 `events`: a time line of what happened, who did it and why, with the values before and after."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Thresholds, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import EVENTS
from routebook_pipeline.transforms.frames import before_end, select_schema, starts_inside
from routebook_pipeline.transforms.instants import rank
from routebook_pipeline.transforms.losses import Marks, literal_array, marks_of
from routebook_pipeline.transforms.route_table import READ, WRITE, is_group_removal, is_permission_change, is_put
from routebook_pipeline.transforms.seat_states import is_evidence, is_up

REMOVED: Final = "removed"
_RESTATEMENTS = (int(Kind.BASELINE_SEAT), int(Kind.BASELINE_QUEUES))


def events(
    history: History,
    window: Window,
    thresholds: Thresholds = DEFAULTS,  # noqa: ARG001 the signature of all questions
    *,
    cluster: str | None = None,
    broker: str | None = None,
    topic: str | None = None,
    after_ord: int | None = None,
) -> DataFrame:
    """One row per entry, and one per queue item; those of a baseline only if they state something new.

    `cluster`, `broker`, `topic`: rows about these, and entries that name no broker, since a hole, a pause or a hold
    concerns all of them. With a topic, entries about a broker as a whole are left out. `after_ord`: only rows after
    this entry.
    """
    about = F.lit(True)
    for name, value in (("cluster", cluster), ("broker", broker)):
        if value is not None:
            about = about & F.col(name).eqNullSafe(F.lit(value))
    is_item = F.col("topic").isNotNull()
    marks = marks_of(history).before(window.end_ms)
    rows = before_end(history.changes, window).where(F.col("broker").isNull() | about)
    if topic is not None:
        # The entry of an item is needed for its actor, its source and its cause.
        rows = rows.where(~is_item | (F.col("topic") == F.lit(topic)))
    # As in the route table, a queue belongs to a broker name. An entry about no broker has a key of its own, so that
    # not all of them are sorted by one task.
    kind_of_key = F.when(is_item, 2).when(is_evidence(), 1).otherwise(0)
    key = F.when(is_item, F.xxhash64("topic", "broker")).when(is_evidence(), F.col("seat_key")).otherwise(F.col("ord"))
    by_key = W.partitionBy("group", "kind_of_key", "key").orderBy("ord", "row")
    of_broker = W.partitionBy("group").orderBy("ord").rangeBetween(W.unboundedPreceding, W.currentRow)
    found = (
        rows.withColumns(
            {
                "group": F.coalesce("broker", F.col("ord").cast("string")),
                "key": key,
                "kind_of_key": kind_of_key,
                "after": _statement(),
            }
        )
        .withColumns(
            {
                "removed_ord": F.max(F.when(is_group_removal(), F.col("ord"))).over(of_broker),
            }
        )
        .withColumns({"last": F.lag("after").over(by_key), "last_ord": F.lag("ord").over(by_key)})
        .where(starts_inside(window, "ms"))
        .where(F.lit(True) if after_ord is None else F.col("ord") > F.lit(after_ord))
        .withColumn("before", F.when(~is_item | _still_counts(marks), F.col("last")))
    )
    by_entry = W.partitionBy("ord").orderBy("row").rowsBetween(W.unboundedPreceding, W.currentRow)
    of_entry = {name: F.first(name).over(by_entry) for name in ("cause", "actor", "source")}
    is_repeated = F.col("code").isin(*_RESTATEMENTS) & (
        (F.col("kind_of_key") == 0) | F.col("before").eqNullSafe(F.col("after"))
    )
    shown = found.withColumns(of_entry).where(~F.coalesce(is_repeated, F.lit(False)))
    if topic is not None:
        shown = shown.where(is_item | F.col("broker").isNull())
    return select_schema(shown, EVENTS)


def _still_counts(marks: Marks) -> Column:
    """The queue that the last item about it put was not removed before this one: by itself, with its group, or by a
    baseline that did not name it.
    """
    next_baseline = rank("last_ord", [one.begin for one in marks.baselines])
    ended_ord = F.get(literal_array(one.ord for one in marks.baselines), next_baseline)
    is_gone = F.coalesce(ended_ord < F.col("ord"), F.lit(False))
    with_group = F.coalesce(F.col("removed_ord") > F.col("last_ord"), F.lit(False))
    return (F.col("last") != REMOVED) & ~with_group & ~is_gone


def _statement() -> Column:
    """What the row states about its subject, in words."""
    item = F.concat_ws(
        ", ",
        F.concat(F.col("read_queues").cast("string"), F.lit(" read")),
        F.concat(F.col("write_queues").cast("string"), F.lit(" write")),
        permission_text(F.col("perm")),
    )
    versions = F.concat_ws(" to ", F.col("from_version").cast("string"), F.col("to_version").cast("string"))
    is_lost = F.col("code").isin(int(Kind.HOLE), int(Kind.FORK))
    return (
        F.when(F.col("topic").isNotNull(), F.when(is_put(), item).otherwise(F.lit(REMOVED)))
        .when(is_evidence() & is_up(), F.col("addr"))
        .when(is_evidence(), F.when(F.col("group_removed"), F.lit("down, group removed")).otherwise(F.lit("down")))
        .when(is_permission_change("set"), F.concat(F.lit("all topics "), permission_text(F.col("perm"))))
        .when(is_permission_change(), F.lit("all topics not writable"))
        .when(is_lost, F.concat(F.lit("versions "), versions))
        .when(
            F.col("code") == int(Kind.EXPIRY_PAUSED),
            F.concat(F.lit("for "), (F.col("to_ms") - F.col("from_ms")).cast("string"), F.lit(" ms")),
        )
    )


def permission_text(perm: Column) -> Column:
    """`rw`, `r-`, `-w` or `--`, as in tables."""
    readable = F.when(perm.bitwiseAND(F.lit(READ)) != 0, F.lit("r")).otherwise(F.lit("-"))
    writable = F.when(perm.bitwiseAND(F.lit(WRITE)) != 0, F.lit("w")).otherwise(F.lit("-"))
    return F.when(perm.isNotNull(), F.concat(readable, writable))
