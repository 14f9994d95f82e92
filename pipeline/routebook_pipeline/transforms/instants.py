"""Finds the last row of each key, at one instant or at many.

For many instants the table is read only once. Each row belongs to the first instant at which it is visible. The last
row of each key and instant is taken, and what is left (as many rows as keys that changed) is carried to later instants.

The values that are carried have a fixed width: with a string or a struct among them, Spark would sort instead of hash.
Strings are keys.
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


def rank(column: str, rising: Sequence[int]) -> Column:
    """How many of these rising numbers are at most the value of the column, an expression of SQL.

    It is a binary search as one expression. A sum over all numbers would be nested once per number, and overflow the
    JVM's stack in a window of a year. A join would compare every row with every number.
    """

    def search(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        below, above = search(low, middle), search(middle + 1, high)
        return f"CASE WHEN {column} < {rising[middle]}L THEN {below} ELSE {above} END"

    return F.expr(search(0, len(rising)))


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
        by_ord = self.ordered[0].ord is not None
        places = [instant.ord if by_ord else instant.ms for instant in self.ordered[:-1]]
        return rank(f"({'ord' if by_ord else 'ms'} - 1)", [place for place in places if place is not None])

    def visible(self, rows: DataFrame) -> DataFrame:
        """The rows that are visible at the last instant."""
        return rows.where(is_visible_at(self.ordered[-1]))

    def for_each(self, rows: DataFrame) -> DataFrame:
        """Repeats every row for each instant at which it is visible. For small frames."""
        visible = self.visible(rows)
        if len(self.ordered) == 1:
            return visible.withColumn("at", F.lit(0))
        last = F.lit(len(self.ordered) - 1)
        return visible.withColumn("at", F.explode(F.sequence(self.first_visible(), last)))

    def carried(self, rows: DataFrame, keys: Sequence[str], aggregates: Mapping[str, Column]) -> DataFrame:
        """The keys, `at`, and the aggregates of the key's rows that are visible at that instant.

        `rows` are visible and have `first_visible`. An aggregate gives the same over the results of several parts as
        over all rows, like a maximum. A key without a visible row is left out.
        """
        found = rows.groupBy(*keys, "first_visible").agg(*[column.alias(name) for name, column in aggregates.items()])
        if len(self.ordered) == 1:
            return found.withColumnRenamed("first_visible", "at")
        in_order = W.partitionBy(*keys).orderBy("first_visible")
        so_far = in_order.rowsBetween(W.unboundedPreceding, W.currentRow)
        until = F.coalesce(F.lead("first_visible").over(in_order) - 1, F.lit(len(self.ordered) - 1))
        return (
            found.select(
                *keys,
                *[column.over(so_far).alias(name) for name, column in aggregates.items()],
                F.sequence("first_visible", until).alias("numbers"),
            )
            .withColumn("at", F.explode("numbers"))
            .drop("numbers")
        )
