"""Finds the last row of each key, at one instant or at many.

For many instants the table is read only once. Each row belongs to the first instant at which it is visible. The last
row of each key and instant is taken, and what is left (as many rows as keys that changed) is carried to later instants.

The values that are carried have a fixed width: with a string or a struct among them, Spark would sort instead of hash.
Strings are joined afterwards, by the row's place in the history (`ord`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import Instant


def is_visible_at(instant: Instant) -> Column:
    """Whether the row is part of the history at this instant."""
    if instant.ord is not None:
        return F.col("ord") <= F.lit(instant.ord)
    if instant.ms is None:
        raise ValueError("an instant has neither ms nor ord: one of them must be set")
    return F.col("ms") <= F.lit(instant.ms)


@dataclass(frozen=True)
class Instants:
    """Instants in rising order: every row that is visible at one of them is visible at all later ones.

    In data frames `at` is the number of an instant, from 0.
    """

    ordered: Sequence[Instant]

    @classmethod
    def of_ms(cls, times_ms: Sequence[int]) -> "Instants":
        return cls([Instant(ms=ms) for ms in sorted(set(times_ms))])

    def first_visible(self) -> Column:
        """The number of the first instant at which the row is visible; the last one if there is none."""
        return self._first_visible_among(0, len(self.ordered) - 1)

    def _first_visible_among(self, low: int, high: int) -> Column:
        """A binary search as one expression. A sum over all instants would be nested once per instant, and overflow the
        JVM's stack in a window of a year.
        """
        if low == high:
            return F.lit(low)
        middle = (low + high) // 2
        return F.when(is_visible_at(self.ordered[middle]), self._first_visible_among(low, middle)).otherwise(
            self._first_visible_among(middle + 1, high)
        )

    def visible(self, rows: DataFrame) -> DataFrame:
        """The rows that are visible at the last instant."""
        return rows.where(is_visible_at(self.ordered[-1]))

    def frame(self, rows: DataFrame) -> DataFrame:
        """One row per instant, with its number. `rows` only provides the session."""
        return rows.sparkSession.range(len(self.ordered), numPartitions=1).select(F.col("id").cast("int").alias("at"))

    def for_each(self, rows: DataFrame) -> DataFrame:
        """Repeats every row for each instant at which it is visible. For small frames."""
        visible = self.visible(rows)
        if len(self.ordered) == 1:
            return visible.withColumn("at", F.lit(0))
        last = F.lit(len(self.ordered) - 1)
        return visible.withColumn("at", F.explode(F.sequence(self.first_visible(), last)))

    def last_rows(self, rows: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
        """The keys, `at`, and `ord` and the values of the key's last row at that instant.

        A key without a visible row is left out.
        """
        aggregates = {"ord": F.max("ord"), **{value: F.max_by(value, "ord") for value in values}}
        return self._carried(rows, keys, aggregates, aggregates)

    def highest(self, rows: DataFrame, keys: Sequence[str], columns: Mapping[str, str]) -> DataFrame:
        """The keys, `at`, and the highest value of each column so far, under its new name."""
        aggregates = {name: F.max(column) for column, name in columns.items()}
        return self._carried(rows, keys, aggregates, {name: F.max(name) for name in aggregates})

    def _carried(
        self, rows: DataFrame, keys: Sequence[str], aggregates: Mapping[str, Column], carried: Mapping[str, Column]
    ) -> DataFrame:
        """`aggregates` combine the rows that become visible at one instant; `carried` combines the results in time."""
        visible = self.visible(rows)
        if len(self.ordered) == 1:
            found = visible.groupBy(*keys).agg(*[column.alias(name) for name, column in aggregates.items()])
            return found.withColumn("at", F.lit(0))
        fresh = (
            visible.withColumn("first_visible", self.first_visible())
            .groupBy(*keys, "first_visible")
            .agg(*[column.alias(name) for name, column in aggregates.items()])
        )
        in_order = W.partitionBy(*keys).orderBy("first_visible")
        so_far = in_order.rowsBetween(W.unboundedPreceding, W.currentRow)
        until = F.coalesce(F.lead("first_visible").over(in_order) - 1, F.lit(len(self.ordered) - 1))
        return (
            fresh.select(
                *keys,
                *[column.over(so_far).alias(name) for name, column in carried.items()],
                F.sequence("first_visible", until).alias("numbers"),
            )
            .withColumn("at", F.explode("numbers"))
            .drop("numbers")
        )


def latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The whole row with the highest `ord` of each key. For small frames."""
    rank = F.row_number().over(W.partitionBy(*keys).orderBy(F.desc("ord")))
    return rows.withColumn("rank", rank).where(F.col("rank") == 1).drop("rank")
