"""The state of each seat over time.

| state | begins with |
|---|---|
| UP | codes 10, 11, 61 |
| DOWN | code 12; the cause of the first one says whether it was planned |
| UNKNOWN | a hole or fork, for every seat seen before it; at the time of the last entry before it |
| GONE | the end of a complete baseline, for a seat whose last evidence lies before the baseline's begin |

A baseline does not make a DOWN seat GONE. That the seat is not held is known already, and a crashed broker must still
count as down after the next baseline.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import Thresholds, Window
from routebook_pipeline.kinds import UNPLANNED_CAUSES, Kind
from routebook_pipeline.transforms.frames import before_end
from routebook_pipeline.transforms.losses import baselines, losses_with_start

UP: Final = 1
DOWN: Final = 2
UNKNOWN: Final = 3
GONE: Final = 4

REGISTRATION_CODES: Final = (int(Kind.BROKER_REGISTERED), int(Kind.BROKER_CHANGED), int(Kind.BASELINE_SEAT))
_EVIDENCE_CODES: Final = (*REGISTRATION_CODES, int(Kind.BROKER_REMOVED))


def is_evidence() -> Column:
    """The entry says whether one seat is held."""
    return (F.col("row") == 0) & F.col("code").isin(*_EVIDENCE_CODES) & F.col("broker_id").isNotNull()


def evidence(changes: DataFrame) -> DataFrame:
    return changes.where(is_evidence())


def is_up() -> Column:
    return F.col("code").isin(*REGISTRATION_CODES)


def is_unplanned() -> Column:
    return F.coalesce(F.col("cause").isin(*UNPLANNED_CAUSES), F.lit(False))


def is_hand_over() -> Column:
    """A planned DOWN that ended with an UP in the millisecond in which it began: an address was replaced, or moved. The
    seat was never absent.
    """
    is_planned_down = (F.col("state") == DOWN) & ~F.col("unplanned")
    return is_planned_down & F.col("then").eqNullSafe(UP) & F.col("end_ms").eqNullSafe(F.col("start_ms"))


def seats(changes: DataFrame) -> DataFrame:
    """Every seat with its names, and the `ord` (`first_ord`) and time (`first_ms`) of its first evidence."""
    return (
        evidence(changes)
        .groupBy("seat_key", "group_key", "cluster", "broker", "broker_id")
        .agg(F.min("ord").alias("first_ord"), F.min_by("ms", "ord").alias("first_ms"))
    )


def intervals(changes: DataFrame, window: Window, thresholds: Thresholds) -> DataFrame:
    """The stretches of time during which a seat was in one state, each with the `ord` of the entry that began it.

    `unplanned`, `cause`: those of the first entry of a DOWN. `start_ms`, `end_ms`: the whole interval; `end_ms` is null
    if the state lasted until the end of the window. `before`, `then`: the states before and after it. `from_ms`,
    `to_ms`, `length_ms`: the part that counts, which lies inside the window; a DOWN counts for at most
    `retire_after_ms`.
    """
    in_order = W.partitionBy("seat_key").orderBy("ord")
    found = (
        state_changes(before_end(changes, window))
        .withColumn("end_ms", F.lead("ms").over(in_order))
        .withColumn("then", F.lead("state").over(in_order))
        .withColumnRenamed("ms", "start_ms")
    )
    end = F.least(F.coalesce("end_ms", F.lit(window.end_ms)), F.lit(window.end_ms))
    counted_end = F.when(
        F.col("state") == DOWN, F.least(end, F.col("start_ms") + F.lit(thresholds.retire_after_ms))
    ).otherwise(end)
    return (
        found.withColumn("from_ms", F.greatest("start_ms", F.lit(window.start_ms)))
        .withColumn("to_ms", counted_end)
        .withColumn("length_ms", F.greatest(F.lit(0), F.col("to_ms") - F.col("from_ms")))
    )


def state_changes(changes: DataFrame) -> DataFrame:
    """Every change of a seat's state, with the state before it (`before`).

    A change comes from the seat's own evidence, or from a loss or baseline that affects the seat. There is much
    evidence, and there are few losses and baselines. Their effect is therefore computed in a join of its own, which
    adaptive execution drops if there are none.
    """
    in_order = W.partitionBy("seat_key").orderBy("ord")
    own = _states_by_evidence(changes)
    changed = own.withColumn("before", F.lag("state").over(in_order)).where(_is_change()).select(*_STATE_COLUMNS)
    return changed.unionByName(_states_by_marks(changes, own)).withColumn("before", F.lag("state").over(in_order))


_STATE_COLUMNS: Final = ("seat_key", "ord", "ms", "state", "unplanned", "cause")


def _states_by_evidence(changes: DataFrame) -> DataFrame:
    return evidence(changes).select(
        "seat_key",
        "ord",
        "ms",
        F.when(is_up(), F.lit(UP)).otherwise(F.lit(DOWN)).alias("state"),
        is_unplanned().alias("unplanned"),
        "cause",
    )


def _is_change() -> Column:
    return F.col("before").isNull() | (F.col("before") != F.col("state"))


def _states_by_marks(changes: DataFrame, own: DataFrame) -> DataFrame:
    """The changes caused by the marks (losses and baselines) between an evidence and the seat's next one.

    This includes the next evidence itself if it has the same state as the previous one: without the marks it would not
    have been a change.
    """
    in_order = W.partitionBy("seat_key").orderBy("ord")
    nexts = {f"next_{name}": F.lead(name).over(in_order) for name in _STATE_COLUMNS[1:]}
    lies_between = (F.col("mark_ord") > F.col("ord")) & (
        F.col("next_ord").isNull() | (F.col("mark_ord") < F.col("next_ord"))
    )
    between = W.partitionBy("seat_key", "ord").orderBy("mark_ord")
    is_lost = F.coalesce(F.max(F.col("mark") == UNKNOWN).over(between), F.lit(False))
    # A baseline does not affect a DOWN seat, unless a loss has made its state unknown.
    affects_seat = (F.col("mark") == UNKNOWN) | (
        (F.col("ord") < F.col("begin")) & ((F.col("state") != DOWN) | F.col("is_lost"))
    )
    affected = (
        own.withColumns(nexts)
        .join(F.broadcast(_marks(changes)), lies_between)
        .withColumn("is_lost", is_lost)
        .where(affects_seat)
        .withColumn("mark_before", F.lag("mark").over(between))
        .where(F.col("mark_before").isNull() | (F.col("mark_before") != F.col("mark")))
    )
    next_repeats_state = F.col("mark_before").isNull() & (F.col("next_state") == F.col("state"))
    of_mark = {
        "ord": F.col("mark_ord"),
        "ms": F.col("mark_ms"),
        "state": F.col("mark"),
        "unplanned": F.lit(False),
        "cause": F.lit(None).cast("string"),
    }
    is_by_mark = F.col("source") == _BY_MARK
    # The choice is made column by column and not between two structs. So Spark leaves out the columns that a question
    # does not use, both here and in `_states_by_evidence`, and reads and shuffles the rows only once.
    sources = F.array(F.lit(_BY_MARK), F.when(next_repeats_state, F.lit(_BY_NEXT_EVIDENCE)))
    return affected.withColumn("source", F.explode(F.array_compact(sources))).select(
        "seat_key",
        *[
            F.when(is_by_mark, of_mark[name]).otherwise(F.col(f"next_{name}")).alias(name)
            for name in _STATE_COLUMNS[1:]
        ],
    )


_BY_MARK: Final = 0
_BY_NEXT_EVIDENCE: Final = 1


def _marks(changes: DataFrame) -> DataFrame:
    """The losses and complete baselines: `mark_ord`, `mark_ms`, the state they cause (`mark`), and `begin`."""
    lost = losses_with_start(changes).select(
        F.col("ord").alias("mark_ord"),
        F.coalesce("start_ms", "ms").alias("mark_ms"),
        F.lit(UNKNOWN).alias("mark"),
        F.lit(None).cast("long").alias("begin"),
    )
    complete = baselines(changes).select(
        F.col("ord").alias("mark_ord"), F.col("ms").alias("mark_ms"), F.lit(GONE).alias("mark"), "begin"
    )
    return lost.unionByName(complete)
