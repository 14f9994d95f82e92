"""What of a history do later questions still depend on?

Invariant: for A followed by B, `reduce(reduce(A) + B)` is `reduce(A + B)`, and every question over a time behind A has
the same answer over `reduce(A) + B` as over `A + B`. Every rule therefore keeps rows as they are and chooses them by
what they mean at the end: the last of their kind, or the first behind such a one.

| of | stays |
|---|---|
| a seat | its last registration and all evidence behind it: state, when it began and why, address, end of the last UP |
| queue data | the items that are there |
| a broker | its last removal, setting and clearing of permissions |
| | what last marked the group (flags), and what first did since the removal (cluster) |
| | how it lost its last writable queue, if it did |
| losses | the first behind each kept evidence, the last, and those no baseline has repaired; the entry before each |
| baselines | the first behind each kept registration, the last, and a begin that waits for its end |
| everything | the last entry, and the one with the latest time noted |
"""

from functools import reduce as fold
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import CHANGES
from routebook_pipeline.transforms.instants import Points
from routebook_pipeline.transforms.losses import baselines, is_entry, losses, losses_with_start, standing_at
from routebook_pipeline.transforms.route_table import (
    NEVER,
    ends_of_writing,
    is_named,
    is_permission,
    is_removal,
    is_writable,
    last_at,
    marks_group,
    timeline,
)
from routebook_pipeline.transforms.seat_states import evidence, is_up

_END: Final = Points([Instant(ord=(1 << 63) - 1)])
_PLACE: Final = ("ord", "row")


def reduce(changes: DataFrame) -> DataFrame:
    seats = _of_seats(changes)
    marks = _of_marks(changes, seats)
    places = [
        seats.select("ord"),
        marks,
        _entries_before(changes, marks),
        _of_groups(changes),
        changes.where(is_entry()).agg(F.max("ord").alias("ord")),
        changes.where(is_entry()).agg(F.max_by("ord", F.struct("ingested_ms", -F.col("ord"))).alias("ord")),
    ]
    heads = fold(DataFrame.union, places).select("ord", F.lit(0).alias("row"))
    there = last_at(changes, _END).join(F.broadcast(standing_at(changes, _END).select("at", "named_from")), "at")
    kept = heads.union(there.where(is_named()).select(*_PLACE)).union(_of_read_only(changes)).distinct()
    return changes.join(kept, list(_PLACE), "left_semi").select(*CHANGES.names)


def _of_seats(changes: DataFrame) -> DataFrame:
    """`seat_key`, `ord`, `is_up`, and the place of the seat's next evidence."""
    of_seat = W.partitionBy("seat_key")
    registered = F.max(F.when(is_up(), F.col("ord"))).over(of_seat)
    return (
        evidence(changes)
        .select("seat_key", "ord", is_up().alias("is_up"), registered.alias("registered"))
        .withColumn("next_ord", F.lead("ord").over(of_seat.orderBy("ord")))
        .where(F.col("ord") >= F.coalesce("registered", F.lit(NEVER)))
        .drop("registered")
    )


def _of_marks(changes: DataFrame, seats: DataFrame) -> DataFrame:
    """Places of losses, and of begins and ends of baselines."""
    lost, whole = losses(changes).select(F.col("ord").alias("mark")), baselines(changes)
    ends = whole.select(F.col("ord").alias("mark"), "begin")
    is_behind = (F.col("mark") > F.col("ord")) & (F.col("mark") < F.coalesce("next_ord", F.lit((1 << 63) - 1)))
    first_losses = seats.join(F.broadcast(lost), is_behind).groupBy("seat_key", "ord").agg(F.min("mark").alias("mark"))
    first_ends = (
        seats.where("is_up")
        .join(F.broadcast(ends), is_behind & (F.col("begin") > F.col("ord")))
        .groupBy("seat_key", "ord")
        .agg(F.min("mark").alias("mark"))
    )
    last_begin = whole.agg(F.coalesce(F.max("begin"), F.lit(NEVER)).alias("last_begin"))
    unrepaired = lost.crossJoin(last_begin).where(F.col("mark") > F.col("last_begin")).select("mark")
    last_loss = lost.agg(F.max("mark").alias("mark"))
    needed_ends = (
        first_ends.select("mark")
        .union(ends.agg(F.max("mark")))
        .union(ends_of_writing(changes).where(F.col("until_ms").isNull()).select("ord"))
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
    codes = (int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END), int(Kind.HOLE), int(Kind.FORK))
    marks = changes.where((F.col("row") == 0) & F.col("code").isin(*codes))
    last = marks.agg(F.max_by("code", "ord").alias("code"), F.max("ord").alias("mark"))
    return last.where(F.col("code") == int(Kind.BASELINE_BEGIN)).select("mark")


def _entries_before(changes: DataFrame, marks: DataFrame) -> DataFrame:
    before = losses_with_start(changes).join(marks, "ord", "left_semi")
    return before.where(F.col("entry_before").isNotNull()).select(F.col("entry_before").alias("ord"))


def _of_groups(changes: DataFrame) -> DataFrame:
    said = changes.where(is_removal() | is_permission() | marks_group()).select(
        "broker",
        F.when(is_removal(), F.col("ord")).alias("removed"),
        F.when(is_permission("set"), F.col("ord")).alias("set"),
        F.when(is_permission("clear-write"), F.col("ord")).alias("cleared"),
        F.when(marks_group(), F.col("ord")).alias("marked"),
    )
    last = said.groupBy("broker").agg(*[F.max(name).alias(name) for name in ("removed", "set", "cleared", "marked")])
    first = (
        said.where(F.col("marked").isNotNull())
        .select("broker", F.col("marked").alias("ord"))
        .join(F.broadcast(last.select("broker", "removed")), "broker")
        .where(F.col("ord") > F.coalesce("removed", F.lit(NEVER)))
        .groupBy("broker")
        .agg(F.min("ord").alias("ord"))
        .select("ord")
    )
    each = last.select(F.explode(F.array("removed", "set", "cleared", "marked")).alias("ord"))
    return each.where(F.col("ord").isNotNull()).union(first)


def _of_read_only(changes: DataFrame) -> DataFrame:
    """Of every broker that has lost its last writable queue for good: the entry, one queue that could be written to
    until then (what made it so, and its last item), so that it is still known that there was one.
    """
    in_turn = W.partitionBy("name_key").orderBy("ord", "row")
    lost = ends_of_writing(changes).where(F.col("until_ms").isNull()).select("broker", F.col("ord").alias("lost_ord"))
    told = (
        timeline(changes)
        .join(F.broadcast(lost), "broker")
        .withColumn("could", F.coalesce(F.col("present") & is_writable(), F.lit(False)))
        .withColumns(
            {f"{name}_then": F.lag(name).over(in_turn) for name in ("could", "item_ord", "item_row", "set_ord")}
        )
        .withColumn("last_item", F.max(F.struct("item_ord", "item_row")).over(W.partitionBy("name_key")))
    )
    witness = F.row_number().over(W.partitionBy("broker").orderBy("topic"))
    return (
        told.where((F.col("ord") == F.col("lost_ord")) & F.col("could_then"))
        .withColumn("witness", witness)
        .where(F.col("witness") == 1)
        .select(
            F.explode(
                F.array(
                    F.struct(F.col("lost_ord").alias("ord"), F.lit(0).alias("row")),
                    F.struct(F.col("lost_ord").alias("ord"), F.when(F.col("is_item"), F.col("row")).alias("row")),
                    F.struct(F.col("item_ord_then").alias("ord"), F.col("item_row_then").alias("row")),
                    F.struct(F.col("set_ord_then").alias("ord"), F.lit(0).alias("row")),
                    F.struct(F.col("last_item.item_ord").alias("ord"), F.col("last_item.item_row").alias("row")),
                )
            ).alias("place")
        )
        .select("place.ord", "place.row")
        .where(F.col("ord").isNotNull() & F.col("row").isNotNull())
    )
