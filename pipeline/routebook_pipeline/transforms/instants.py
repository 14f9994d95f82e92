"""What was the last row of each key, at one instant or at many.

For many instants the table is read once: a row belongs to the first instant that sees it, the last row of each key and
instant is taken, and what is left (as many rows as there are changed keys) is carried on to the later instants.

Values are of fixed width: with a string or a struct among them Spark would sort instead of hash. Strings are joined
back by the place of the row (`ord`) afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import Instant


def sees(instant: Instant) -> Column:
    """Is the row part of the history at this instant?"""
    if instant.ord is not None:
        return F.col("ord") <= F.lit(instant.ord)
    if instant.ms is None:
        raise ValueError("an instant has neither ms nor ord: one of them must be set")
    return F.col("ms") <= F.lit(instant.ms)


@dataclass(frozen=True)
class Points:
    """Instants from early to late: what one sees, the next one sees too. `at` is the number of an instant, from 0."""

    instants: Sequence[Instant]

    @classmethod
    def of_ms(cls, instants: Sequence[int]) -> "Points":
        return cls([Instant(ms=ms) for ms in sorted(set(instants))])

    def seen_from(self) -> Column:
        """The number of the first instant that sees the row."""
        if len(self.instants) == 1:
            return F.lit(0)
        return reduce(add, [F.when(sees(instant), 0).otherwise(1) for instant in self.instants])

    def visible(self, rows: DataFrame) -> DataFrame:
        return rows.where(sees(self.instants[-1]))

    def frame(self, rows: DataFrame) -> DataFrame:
        """One row an instant, with its number."""
        return rows.sparkSession.range(len(self.instants), numPartitions=1).select(F.col("id").cast("int").alias("at"))

    def each(self, rows: DataFrame) -> DataFrame:
        """Every row once for each instant that sees it. For small frames."""
        visible = self.visible(rows)
        if len(self.instants) == 1:
            return visible.withColumn("at", F.lit(0))
        last = F.lit(len(self.instants) - 1)
        return visible.withColumn("at", F.explode(F.sequence(self.seen_from(), last)))

    def last(self, rows: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
        """keys, `at`, and `ord` and the values of the last row of the key at that instant. Keys without any are not
        there.
        """
        made = {"ord": F.max("ord"), **{value: F.max_by(value, "ord") for value in values}}
        return self._carried(rows, keys, made, made)

    def highest(self, rows: DataFrame, keys: Sequence[str], columns: Mapping[str, str]) -> DataFrame:
        """keys, `at`, and under a new name the highest value of each column so far."""
        made = {name: F.max(column) for column, name in columns.items()}
        return self._carried(rows, keys, made, {name: F.max(name) for name in made})

    def _carried(
        self, rows: DataFrame, keys: Sequence[str], made: Mapping[str, Column], carried: Mapping[str, Column]
    ) -> DataFrame:
        """`made` sums up rows, `carried` what was made of them at one instant after the other."""
        visible = self.visible(rows)
        if len(self.instants) == 1:
            found = visible.groupBy(*keys).agg(*[column.alias(name) for name, column in made.items()])
            return found.withColumn("at", F.lit(0))
        fresh = (
            visible.withColumn("seen_from", self.seen_from())
            .groupBy(*keys, "seen_from")
            .agg(*[column.alias(name) for name, column in made.items()])
        )
        in_turn = W.partitionBy(*keys).orderBy("seen_from")
        so_far = in_turn.rowsBetween(W.unboundedPreceding, W.currentRow)
        until = F.coalesce(F.lead("seen_from").over(in_turn) - 1, F.lit(len(self.instants) - 1))
        return (
            fresh.select(
                *keys,
                *[column.over(so_far).alias(name) for name, column in carried.items()],
                F.sequence("seen_from", until).alias("numbers"),
            )
            .withColumn("at", F.explode("numbers"))
            .drop("numbers")
        )


def latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of each key the row with the highest `ord`, whole. For small frames."""
    rank = F.row_number().over(W.partitionBy(*keys).orderBy(F.desc("ord")))
    return rows.withColumn("rank", rank).where(F.col("rank") == 1).drop("rank")
