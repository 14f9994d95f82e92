"""12 `integrity`: whether the history is whole. Every other answer depends on it."""

from pyspark.sql import DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import INTEGRITY
from routebook_pipeline.transforms.frames import before_end, one_if, select_schema, starts_inside
from routebook_pipeline.transforms.losses import LOSSES, baselines


def by_era(history: History, window: Window, complete_until_ms: int) -> DataFrame:
    whole = baselines(before_end(history.changes, window)).select("ord", F.lit(True).alias("ends_baseline"))
    heads = _heads(history, window)
    rows = (
        heads.where(starts_inside(window, "ms"))
        .join(F.broadcast(whole), "ord", "left")
        .join(F.broadcast(_batches(heads)), "ingested_ms", "left")
    )
    # Count each version once: duplicates are a fault of the lake and must not hide a hole.
    versions = rows.groupBy("era", "version", "code").agg(
        F.count("*").alias("copies"),
        F.first("from_version").alias("from_version"),
        F.first("to_version").alias("to_version"),
        F.first("cause").alias("cause"),
        F.max(F.coalesce("ends_baseline", F.lit(False))).alias("ends_baseline"),
        F.max(F.col("ms") < F.coalesce("noted_before", F.lit(0))).alias("late"),
    )
    is_hole, is_fork = F.col("code").eqNullSafe(int(Kind.HOLE)), F.col("code").eqNullSafe(int(Kind.FORK))
    is_entry = ~is_hole & ~is_fork
    is_unreadable = F.col("code").eqNullSafe(int(Kind.UNREADABLE))
    reasons = (
        versions.where(is_unreadable)
        .groupBy("era", F.coalesce("cause", F.lit("")).alias("cause"))
        .agg(F.count("*").alias("number"))
        .groupBy("era")
        .agg(F.map_from_entries(F.sort_array(F.collect_list(F.struct("cause", "number")))).alias("unreadable"))
    )
    length = F.col("to_version") - F.col("from_version") + 1
    last_place = F.when(is_hole, F.col("to_version")).when(is_entry, F.col("version"))
    first_place = F.when(is_hole, F.col("from_version")).when(is_entry, F.col("version"))
    found = versions.groupBy("era").agg(
        F.min(first_place).alias("first_version"),
        F.max(last_place).alias("last_version"),
        F.sum(one_if(is_entry)).alias("entries"),
        F.sort_array(F.collect_list(F.when(is_hole, F.struct("from_version", "to_version")))).alias("holes"),
        F.sum(F.when(is_hole, length).otherwise(0)).alias("missing"),
        F.sum(one_if(is_fork)).alias("forks"),
        F.sum(one_if(F.col("late") & is_entry)).alias("late"),
        F.sum(F.col("copies") - 1).alias("duplicates"),
        F.sum(one_if(F.col("ends_baseline"))).alias("baselines"),
    )
    span = F.col("last_version") - F.col("first_version") + 1
    is_ok = (
        (F.col("entries") + F.col("missing") == span)
        & (F.col("duplicates") == 0)
        & (F.size("holes") == 0)
        & (F.col("forks") == 0)
        & F.col("unreadable").isNull()
    )
    nothing = F.create_map().cast("map<string,bigint>")
    return select_schema(
        found.join(F.broadcast(reasons), "era", "left")
        .withColumn("ok", F.coalesce(is_ok, F.lit(False)))
        .withColumn("unreadable", F.coalesce("unreadable", nothing))
        .withColumn("complete_until_ms", F.lit(complete_until_ms)),
        INTEGRITY,
    )


def late_entries(history: History, window: Window) -> DataFrame:
    """`version`, `ms` of the entries whose time is earlier than what the store's clock had already shown."""
    heads = _heads(history, window)
    return (
        heads.where(starts_inside(window, "ms") & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES))
        .join(F.broadcast(_batches(heads)), "ingested_ms")
        .where(F.col("ms") < F.col("noted_before"))
        .select("version", "ms")
    )


def _heads(history: History, window: Window) -> DataFrame:
    """Row 0 of every entry, hole and fork."""
    return (
        before_end(history.changes, window)
        .where(F.col("row") == 0)
        .select("era", "version", "ord", "ms", "code", "cause", "from_version", "to_version", "ingested_ms")
    )


def _batches(heads: DataFrame) -> DataFrame:
    """`ingested_ms`, and `noted_before`: the latest store time that was noted at the end of an earlier batch.

    A batch that contains only a hole has a store time, too. With a fork, the first time of the new history is noted.
    """
    in_order = W.orderBy("first_ord").rowsBetween(W.unboundedPreceding, -1)
    return (
        heads.where(F.col("ingested_ms").isNotNull())
        .groupBy("ingested_ms")
        .agg(F.min("ord").alias("first_ord"))
        .select("ingested_ms", F.max("ingested_ms").over(in_order).alias("noted_before"))
    )
