"""Reduces a history to the rows that later questions still depend on.

Invariant: for a history A followed by B, `reduce(reduce(A) + B)` equals `reduce(A + B)`, and every question about a
time after A has the same answer over `reduce(A) + B` as over `A + B`. Therefore rows are never changed, only selected,
by what they mean at the end: the last of their kind, or the first one after such a row.

| about | rows that are kept |
|---|---|
| a seat | its last registration and all evidence after it: state, when it began and why, address, end of the last UP |
| queue data | the items that are present |
| a broker | its last removal, and the last time its permissions were set and cleared |
| | the last description of the group (flags), and the first one since the removal (cluster) |
| | how it lost its last writable queue, if it did |
| losses | the first after each kept evidence, the last, and those no baseline has repaired; the entry before each |
| baselines | the first after each kept registration, the last, and a begin whose end is still missing |
| everything | the last entry, and the one whose batch ended last |
"""

from functools import reduce as fold
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Instant
from routebook_pipeline.schemas import CHANGES
from routebook_pipeline.transforms.instants import Instants, rank
from routebook_pipeline.transforms.losses import Marks, entries_before, is_entry, literal_array, marks_of
from routebook_pipeline.transforms.route_table import (
    NEVER,
    describes_group,
    is_group_removal,
    is_permission_change,
    is_writable,
    losses_of_writability,
    queue_line,
    table_at,
    writable_totals,
)
from routebook_pipeline.transforms.seat_states import evidence, is_up

_END: Final = Instants([Instant(ord=(1 << 63) - 1)])
_PLACE: Final = ("ord", "row")


def reduce(changes: DataFrame) -> DataFrame:
    history = History(changes, pulses=changes.where(F.lit(False)))
    marks = marks_of(history)
    seats = _seat_evidence(changes)
    totals = writable_totals(queue_line(changes, marks))
    lost_for_good = losses_of_writability(totals).where(F.col("until_ms").isNull()).select("broker", "ord")
    kept_marks = _losses_and_baselines(seats, lost_for_good, marks)
    ords = [
        seats.select("ord"),
        kept_marks,
        _entries_before(kept_marks, changes, marks),
        _broker_entries(changes),
        changes.where(is_entry()).agg(F.max("ord").alias("ord")),
        changes.where(is_entry()).agg(F.max_by("ord", F.struct("ingested_ms", -F.col("ord"))).alias("ord")),
    ]
    heads = fold(DataFrame.union, ords).where(F.col("ord").isNotNull()).select("ord", F.lit(0).alias("row"))
    present = table_at(history, _END).where(F.col("topic").isNotNull())
    kept = (
        heads.union(present.select(F.col("item_ord").alias("ord"), "row"))
        .union(_writability_evidence(changes, lost_for_good, marks))
        .distinct()
    )
    return changes.join(kept, list(_PLACE), "left_semi").select(*CHANGES.names)


def _seat_evidence(changes: DataFrame) -> DataFrame:
    """The last registration of every seat and all evidence after it: `seat_key`, `ord`, `is_up`, and the `ord` of the
    seat's next evidence.
    """
    of_seat = W.partitionBy("seat_key")
    registered = F.max(F.when(is_up(), F.col("ord"))).over(of_seat)
    return (
        evidence(changes)
        .select("seat_key", "ord", is_up().alias("is_up"), registered.alias("registered"))
        .withColumn("next_ord", F.lead("ord").over(of_seat.orderBy("ord")))
        .where(F.col("ord") >= F.coalesce("registered", F.lit(NEVER)))
        .drop("registered")
    )


def _losses_and_baselines(seats: DataFrame, lost_for_good: DataFrame, marks: Marks) -> DataFrame:
    """The `ord` of the losses, and of the begins and ends of baselines, that are kept.

    `lost_for_good`: the entries with which brokers lost their last writable queue; one may be the end of a baseline.
    """
    losses, baselines = [loss.ord for loss in marks.losses], marks.baselines
    begins, ends = [one.begin for one in baselines], [one.ord for one in baselines]
    before_next = F.coalesce("next_ord", F.lit((1 << 63) - 1))
    first_loss = F.get(literal_array(losses), rank("ord", losses))
    end = F.get(literal_array(ends), rank("ord", begins))
    of_seats = seats.select(
        F.when(first_loss < before_next, first_loss).alias("loss"),
        F.when(F.col("is_up") & (end < before_next), end).alias("end"),
    )
    is_end = F.array_contains(literal_array(ends), F.col("ord"))
    needed_ends = of_seats.select(F.col("end").alias("ord")).union(lost_for_good.select("ord").where(is_end))
    # The last begin that is not after the end is its own.
    with_begin = F.array("ord", F.get(literal_array(begins), rank("ord", begins) - 1))
    constants = {*(loss.ord for loss in marks.unrepaired), *losses[-1:]}
    constants |= {place for one in baselines[-1:] for place in (one.begin, one.ord)}
    constants |= {marks.open_begin} if marks.open_begin is not None else set()
    always = seats.sparkSession.range(1).select(F.explode(literal_array(sorted(constants))).alias("ord"))
    found = [
        of_seats.select(F.col("loss").alias("ord")),
        needed_ends.where(F.col("ord").isNotNull()).distinct().select(F.explode(with_begin).alias("ord")),
        always,
    ]
    return fold(DataFrame.union, found).where(F.col("ord").isNotNull()).distinct()


def _entries_before(kept_marks: DataFrame, changes: DataFrame, marks: Marks) -> DataFrame:
    """The entry before each loss that is kept."""
    before = entries_before(changes, marks.losses)
    losses = [loss.ord for loss in marks.losses]
    entries = literal_array(before.get(ord_, (None, 0))[0] for ord_ in losses)
    is_loss = F.array_contains(literal_array(losses), F.col("ord"))
    return kept_marks.where(is_loss).select(F.get(entries, rank("ord", losses) - 1).alias("ord"))


def _broker_entries(changes: DataFrame) -> DataFrame:
    """The `ord` of the entries about a broker as a whole that are kept."""
    relevant = changes.where(is_group_removal() | is_permission_change() | describes_group()).select(
        "broker",
        F.when(is_group_removal(), F.col("ord")).alias("removed"),
        F.when(is_permission_change("set"), F.col("ord")).alias("set"),
        F.when(is_permission_change("clear-write"), F.col("ord")).alias("cleared"),
        F.when(describes_group(), F.col("ord")).alias("described"),
    )
    names = ("removed", "set", "cleared", "described")
    last = relevant.groupBy("broker").agg(*[F.max(name).alias(name) for name in names])
    first = (
        relevant.where(F.col("described").isNotNull())
        .select("broker", F.col("described").alias("ord"))
        .join(F.broadcast(last.select("broker", "removed")), "broker")
        .where(F.col("ord") > F.coalesce("removed", F.lit(NEVER)))
        .groupBy("broker")
        .agg(F.min("ord").alias("ord"))
        .select("ord")
    )
    every_last = last.select(F.explode(F.array(*names)).alias("ord"))
    return every_last.where(F.col("ord").isNotNull()).union(first)


def _writability_evidence(changes: DataFrame, lost_for_good: DataFrame, marks: Marks) -> DataFrame:
    """Rows that show that a broker once had a writable queue, for every broker that has lost its last one for good.

    They are the entry with which it was lost, and for one queue that was writable until then: what made it writable and
    its last item.
    """
    lost = lost_for_good.select("broker", F.col("ord").alias("loss_ord"))
    is_earlier = F.col("ord") < F.col("loss_ord")
    is_permission = F.col("topic").isNull() & F.col("permits").isNotNull() & is_earlier
    of_broker, of_queue = W.partitionBy("broker"), W.partitionBy("broker", "topic")
    permission_ord = F.when(is_permission, F.col("ord"))
    end_ord = F.coalesce("gone_ord", "next_ord")
    lasts_until_loss = F.col("put") & is_earlier & (end_ord.isNull() | (end_ord >= F.col("loss_ord")))
    is_set = F.coalesce(F.col("last_permission_ord") > F.col("ord"), F.lit(False))
    was_writable = F.when(is_set, F.col("last_permits")).otherwise(is_writable())
    by_item = F.when(F.col("gone_ord").isNull() & (F.col("next_ord") == F.col("loss_ord")), F.col("next_row"))
    example = F.row_number().over(W.partitionBy("broker").orderBy("topic"))
    places = (
        (F.col("loss_ord"), F.lit(0)),
        (F.col("loss_ord"), by_item),
        (F.col("ord"), F.col("row")),
        (F.when(is_set, F.col("last_permission_ord")), F.lit(0)),
        (F.col("last_item.ord"), F.col("last_item.row")),
    )
    return (
        queue_line(changes, marks)
        .join(F.broadcast(lost), "broker")
        .withColumns(
            {
                "last_permission_ord": F.max(permission_ord).over(of_broker),
                "last_permits": F.max_by("permits", permission_ord).over(of_broker),
                "last_item": F.max(F.struct("ord", "row")).over(of_queue),
            }
        )
        .where(F.col("topic").isNotNull() & lasts_until_loss & was_writable)
        .withColumn("example", example)
        .where(F.col("example") == 1)
        .select(
            F.explode(F.array(*[F.struct(ord_.alias("ord"), row.alias("row")) for ord_, row in places])).alias("at")
        )
        .select("at.ord", "at.row")
        .where(F.col("ord").isNotNull() & F.col("row").isNotNull())
    )
