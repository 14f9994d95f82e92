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

from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import CHANGES
from routebook_pipeline.transforms.instants import Instants
from routebook_pipeline.transforms.losses import baselines, is_entry, losses, losses_with_start, validity_at
from routebook_pipeline.transforms.route_table import (
    NEVER,
    describes_group,
    is_group_removal,
    is_permission_change,
    is_writable,
    losses_of_writability,
    queue_changes,
    queues_at,
    survives_baselines,
)
from routebook_pipeline.transforms.seat_states import evidence, is_up

_END: Final = Instants([Instant(ord=(1 << 63) - 1)])
_PLACE: Final = ("ord", "row")


def reduce(changes: DataFrame) -> DataFrame:
    seats = _seat_evidence(changes)
    marks = _losses_and_baselines(changes, seats)
    ords = [
        seats.select("ord"),
        marks,
        _entries_before(changes, marks),
        _broker_entries(changes),
        changes.where(is_entry()).agg(F.max("ord").alias("ord")),
        changes.where(is_entry()).agg(F.max_by("ord", F.struct("ingested_ms", -F.col("ord"))).alias("ord")),
    ]
    heads = fold(DataFrame.union, ords).select("ord", F.lit(0).alias("row"))
    validity = F.broadcast(validity_at(changes, _END).select("at", "baseline_begin"))
    present = queues_at(changes, _END).join(validity, "at").where(survives_baselines()).select(*_PLACE)
    kept = heads.union(present).union(_writability_evidence(changes)).distinct()
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


def _losses_and_baselines(changes: DataFrame, seats: DataFrame) -> DataFrame:
    """The `ord` of the losses, and of the begins and ends of baselines, that are kept."""
    lost, complete = losses(changes).select(F.col("ord").alias("mark")), baselines(changes)
    ends = complete.select(F.col("ord").alias("mark"), "begin")
    lies_after_evidence = (F.col("mark") > F.col("ord")) & (
        F.col("mark") < F.coalesce("next_ord", F.lit((1 << 63) - 1))
    )
    first_losses = (
        seats.join(F.broadcast(lost), lies_after_evidence).groupBy("seat_key", "ord").agg(F.min("mark").alias("mark"))
    )
    first_ends = (
        seats.where("is_up")
        .join(F.broadcast(ends), lies_after_evidence & (F.col("begin") > F.col("ord")))
        .groupBy("seat_key", "ord")
        .agg(F.min("mark").alias("mark"))
    )
    last_begin = complete.agg(F.coalesce(F.max("begin"), F.lit(NEVER)).alias("last_begin"))
    unrepaired = lost.crossJoin(last_begin).where(F.col("mark") > F.col("last_begin")).select("mark")
    last_loss = lost.agg(F.max("mark").alias("mark"))
    needed_ends = (
        first_ends.select("mark")
        .union(ends.agg(F.max("mark")))
        .union(losses_of_writability(changes).where(F.col("until_ms").isNull()).select("ord"))
        .distinct()
    )
    pairs = ends.join(needed_ends, "mark").select(F.explode(F.array("mark", "begin")).alias("mark"))
    return (
        fold(DataFrame.union, [first_losses.select("mark"), unrepaired, last_loss, pairs, _open_begin(changes)])
        .where(F.col("mark").isNotNull())
        .distinct()
        .withColumnRenamed("mark", "ord")
    )


def _open_begin(changes: DataFrame) -> DataFrame:
    """The begin of a baseline that has not ended yet, if the history ends inside one."""
    codes = (int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END), int(Kind.HOLE), int(Kind.FORK))
    marks = changes.where((F.col("row") == 0) & F.col("code").isin(*codes))
    last = marks.agg(F.max_by("code", "ord").alias("code"), F.max("ord").alias("mark"))
    return last.where(F.col("code") == int(Kind.BASELINE_BEGIN)).select("mark")


def _entries_before(changes: DataFrame, marks: DataFrame) -> DataFrame:
    before = losses_with_start(changes).join(marks, "ord", "left_semi")
    return before.where(F.col("entry_before").isNotNull()).select(F.col("entry_before").alias("ord"))


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


def _writability_evidence(changes: DataFrame) -> DataFrame:
    """Rows that show that a broker once had a writable queue, for every broker that has lost its last one for good.

    They are the entry with which it was lost, and for one queue that was writable until then: what made it writable and
    its last item.
    """
    in_order = W.partitionBy("name_key").orderBy("ord", "row")
    lost = (
        losses_of_writability(changes)
        .where(F.col("until_ms").isNull())
        .select("broker", F.col("ord").alias("loss_ord"))
    )
    steps = (
        queue_changes(changes)
        .join(F.broadcast(lost), "broker")
        .withColumn("was_writable", F.coalesce(F.col("present") & is_writable(), F.lit(False)))
        .withColumns(
            {
                f"{name}_before": F.lag(name).over(in_order)
                for name in ("was_writable", "item_ord", "item_row", "set_ord")
            }
        )
        .withColumn("last_item", F.max(F.struct("item_ord", "item_row")).over(W.partitionBy("name_key")))
    )
    example = F.row_number().over(W.partitionBy("broker").orderBy("topic"))
    return (
        steps.where((F.col("ord") == F.col("loss_ord")) & F.col("was_writable_before"))
        .withColumn("example", example)
        .where(F.col("example") == 1)
        .select(
            F.explode(
                F.array(
                    F.struct(F.col("loss_ord").alias("ord"), F.lit(0).alias("row")),
                    F.struct(F.col("loss_ord").alias("ord"), F.when(F.col("is_item"), F.col("row")).alias("row")),
                    F.struct(F.col("item_ord_before").alias("ord"), F.col("item_row_before").alias("row")),
                    F.struct(F.col("set_ord_before").alias("ord"), F.lit(0).alias("row")),
                    F.struct(F.col("last_item.item_ord").alias("ord"), F.col("last_item.item_row").alias("row")),
                )
            ).alias("place")
        )
        .select("place.ord", "place.row")
        .where(F.col("ord").isNotNull() & F.col("row").isNotNull())
    )
