"""Operations on data frames that every question uses: the answer's columns, and counts over time spans."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import StructType

from routebook_pipeline.history import ERA_SHIFT


def select_schema(frame: DataFrame, shape: StructType) -> DataFrame:
    """Exactly these columns, in this order and of these types."""
    return frame.select([F.col(field.name).cast(field.dataType).alias(field.name) for field in shape.fields])


def version_of(place: str = "ord") -> Column:
    """The version within its era, of an `ord`."""
    return F.col(place).bitwiseAND(F.lit(ERA_SHIFT - 1))


def one_if(condition: Column) -> Column:
    """1 where the condition holds, else 0, also where it is null: to be summed."""
    return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("long")


def segments(spans: DataFrame, keys: Sequence[str], counts: Mapping[str, Column]) -> DataFrame:
    """Spans are [`from_ms`, `to_ms`). Of each key, from instant to instant: `from_ms`, `to_ms`, and each count: the
    sum, over the spans that hold then, of its column.
    """
    edges = (
        spans.where(F.col("from_ms") < F.col("to_ms"))
        .select(*keys, "from_ms", "to_ms", *[column.cast("long").alias(name) for name, column in counts.items()])
        .withColumn("step", F.explode(F.array(F.lit(1), F.lit(-1))))
        .withColumn("edge", F.when(F.col("step") == 1, F.col("from_ms")).otherwise(F.col("to_ms")))
        .groupBy(*keys, "edge")
        .agg(*[F.sum(F.col(name) * F.col("step")).alias(name) for name in counts])
    )
    in_turn = W.partitionBy(*keys).orderBy("edge")
    return edges.select(
        *keys,
        F.col("edge").alias("from_ms"),
        F.lead("edge").over(in_turn).alias("to_ms"),
        *[F.sum(name).over(in_turn).alias(name) for name in counts],
    ).where(F.col("to_ms").isNotNull())


def unbroken(found: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Segments that touch are one."""
    in_turn = W.partitionBy(*keys).orderBy("from_ms")
    begins = F.lag("to_ms").over(in_turn).isNull() | (F.lag("to_ms").over(in_turn) < F.col("from_ms"))
    number = F.sum(F.when(F.col("begins"), 1).otherwise(0)).over(in_turn)
    return (
        found.withColumn("begins", begins)
        .withColumn("stretch", number)
        .groupBy(*keys, "stretch")
        .agg(F.min("from_ms").alias("from_ms"), F.max("to_ms").alias("to_ms"))
        .drop("stretch")
    )
