"""The last step of every answer."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.types import StructType

from routebook_pipeline.schemas import ERA_SHIFT


def shaped(frame: DataFrame, shape: StructType) -> DataFrame:
    """Exactly these columns, in this order and of these types."""
    return frame.select([F.col(field.name).cast(field.dataType).alias(field.name) for field in shape.fields])


def version_of(place: str = "ord") -> Column:
    """The version within its era, of an `ord`."""
    return F.col(place).bitwiseAND(F.lit(ERA_SHIFT - 1))


def flag(condition: Column) -> Column:
    """1 where the condition holds, else 0, also where it is null: to be summed."""
    return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("long")
