"""What is known of a seat, and from when on.

| state | begins with |
|---|---|
| UP | codes 10, 11, 61 |
| DOWN | code 12; planned or not is said by the cause of the first one |
| UNKNOWN | a hole or fork, for every seat heard of before it, at the time of the last entry before it |
| GONE | the end of a whole baseline, for a seat that was last heard of before its begin |

A seat that is DOWN is not GONE by a baseline: that it is not there is what is known already, and a broker that crashed
shall not cease to be missed at the next midnight.

Stretches of time in which a seat was in one state.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import Thresholds, Window
from routebook_pipeline.kinds import UNPLANNED_CAUSES, Kind
from routebook_pipeline.transforms.losses import baselines, losses_with_start

UP: Final = 1
DOWN: Final = 2
UNKNOWN: Final = 3
GONE: Final = 4

COMES: Final = (int(Kind.BROKER_REGISTERED), int(Kind.BROKER_CHANGED), int(Kind.BASELINE_SEAT))
_SAYS: Final = (*COMES, int(Kind.BROKER_REMOVED))


def is_evidence() -> Column:
    """The entry speaks of one seat."""
    return (F.col("row") == 0) & F.col("code").isin(*_SAYS) & F.col("broker_id").isNotNull()


def evidence(changes: DataFrame) -> DataFrame:
    return changes.where(is_evidence())


def is_up() -> Column:
    return F.col("code").isin(*COMES)


def is_unplanned() -> Column:
    return F.coalesce(F.col("cause").isin(*UNPLANNED_CAUSES), F.lit(False))


def seats(changes: DataFrame) -> DataFrame:
    """Every seat heard of, with its names: `first_ord`, and `first_ms`, the time of its first evidence."""
    return (
        evidence(changes)
        .groupBy("seat_key", "group_key", "cluster", "broker", "broker_id")
        .agg(F.min("ord").alias("first_ord"), F.min_by("ms", "ord").alias("first_ms"))
    )


def timeline(changes: DataFrame) -> DataFrame:
    """Every change of what is known of a seat, by `ord`; `before` is what was known until then. It comes from the
    seat's own evidence, or from a loss or a baseline that means something to it.

    Evidence is many and marks are few, often none: what they say hangs on a join with them, which adaptive execution
    drops when there are none. No value is carried along all the evidence.
    """
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    own = _own_words(changes)
    changed = own.withColumn("before", F.lag("state").over(in_turn)).where(_is_change()).select(*_WORD)
    return changed.unionByName(_told_by_marks(changes, own)).withColumn("before", F.lag("state").over(in_turn))


_WORD: Final = ("seat_key", "ord", "ms", "state", "unplanned", "cause")


def _own_words(changes: DataFrame) -> DataFrame:
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


def _told_by_marks(changes: DataFrame, own: DataFrame) -> DataFrame:
    """What the marks between an evidence and the seat's next one change, and that next one when without them it would
    have changed nothing.
    """
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    nexts = {f"next_{name}": F.lead(name).over(in_turn) for name in _WORD[1:]}
    lies_between = (F.col("mark_ord") > F.col("ord")) & (
        F.col("next_ord").isNull() | (F.col("mark_ord") < F.col("next_ord"))
    )
    between = W.partitionBy("seat_key", "ord").orderBy("mark_ord")
    is_lost = F.coalesce(F.max(F.col("mark") == UNKNOWN).over(between), F.lit(False))
    # That a seat is DOWN is known, named or not, unless that knowledge was lost.
    says_something = (F.col("mark") == UNKNOWN) | (
        (F.col("ord") < F.col("begin")) & ((F.col("state") != DOWN) | F.col("is_lost"))
    )
    told = (
        own.withColumns(nexts)
        .join(F.broadcast(_marks(changes)), lies_between)
        .withColumn("is_lost", is_lost)
        .where(says_something)
        .withColumn("mark_before", F.lag("mark").over(between))
        .where(F.col("mark_before").isNull() | (F.col("mark_before") != F.col("mark")))
    )
    says_it_again = F.col("mark_before").isNull() & (F.col("next_state") == F.col("state"))
    of_mark = {
        "ord": F.col("mark_ord"),
        "ms": F.col("mark_ms"),
        "state": F.col("mark"),
        "unplanned": F.lit(False),
        "cause": F.lit(None).cast("string"),
    }
    is_marks = F.col("whose") == _MARKS_WORD
    # A choice column by column, not one of two structs: what nobody asks for is then not read, here as in `_own_words`,
    # and the two are read and shuffled once.
    return told.withColumn(
        "whose", F.explode(F.array_compact(F.array(F.lit(_MARKS_WORD), F.when(says_it_again, F.lit(_NEXT_WORD)))))
    ).select(
        "seat_key",
        *[F.when(is_marks, of_mark[name]).otherwise(F.col(f"next_{name}")).alias(name) for name in _WORD[1:]],
    )


_MARKS_WORD: Final = 0
_NEXT_WORD: Final = 1


def _marks(changes: DataFrame) -> DataFrame:
    """All losses and whole baselines: `mark_ord`, `mark_ms`, the state that they say (`mark`), and a baseline's
    `begin`.
    """
    lost = losses_with_start(changes).select(
        F.col("ord").alias("mark_ord"),
        F.coalesce("start_ms", "ms").alias("mark_ms"),
        F.lit(UNKNOWN).alias("mark"),
        F.lit(None).cast("long").alias("begin"),
    )
    whole = baselines(changes).select(
        F.col("ord").alias("mark_ord"), F.col("ms").alias("mark_ms"), F.lit(GONE).alias("mark"), "begin"
    )
    return lost.unionByName(whole)


def before_end(rows: DataFrame, window: Window) -> DataFrame:
    """Entries at or behind the end of the window never count, so that the answer to a closed window never changes."""
    return rows.where(F.col("ms") < F.lit(window.end_ms))


def intervals(changes: DataFrame, window: Window, thresholds: Thresholds) -> DataFrame:
    """Of every seat, by `ord` of what began it: `state`, `unplanned` and `cause` (of the first, for DOWN), `start_ms`,
    `end_ms` (null: still so at the end of the window), `before` and `then` (the states around it). What counts lies in
    [`from_ms`, `to_ms`) and is `length_ms` long: inside the window, and of DOWN at most as much as a broker that was
    taken away shall hurt.
    """
    in_turn = W.partitionBy("seat_key").orderBy("ord")
    found = (
        timeline(before_end(changes, window))
        .withColumn("end_ms", F.lead("ms").over(in_turn))
        .withColumn("then", F.lead("state").over(in_turn))
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


def starts_inside(window: Window, column: str = "start_ms") -> Column:
    return (F.col(column) >= F.lit(window.start_ms)) & (F.col(column) < F.lit(window.end_ms))
