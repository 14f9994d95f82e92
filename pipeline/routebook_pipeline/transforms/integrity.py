"""12 `integrity`: whether the history is whole. Every other answer depends on it."""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import ERA_SHIFT, Days, History, Window
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import INTEGRITY
from routebook_pipeline.transforms.frames import before_end, is_between, keys_of, of_day, one_if, select_schema
from routebook_pipeline.transforms.losses import LOSSES, Baseline, Loss, Marks, literal_array, marks_of


def by_era(history: History, window: Window, complete_until_ms: int) -> DataFrame:
    """Each answer comes with this one. It is therefore computed from sums, and each version is compared only if a sum
    does not have the value that a whole history would have.
    """
    if isinstance(window, Days):
        return by_version(history, window, complete_until_ms)
    found = [era.row(complete_until_ms) for era in summary(history, window).eras]
    if None in found:
        return by_version(history, window, complete_until_ms)
    session = history.changes.sparkSession
    return session.createDataFrame([tuple(row[name] for name in INTEGRITY.names) for row in found if row], INTEGRITY)


@dataclass(frozen=True)
class EraSummary:
    """Sums over the entries of one era in a window."""

    era: int
    first: int | None
    last: int | None
    entries: int
    total: int
    """The sum of all versions."""
    squares: int
    """The sum of the squared low bits of all versions."""
    unreadable: int
    has_late: bool
    """Whether an entry may be late."""
    losses: tuple[Loss, ...]
    baselines: int

    def row(self, complete_until_ms: int) -> dict[str, Any] | None:
        """The row of the answer; None if it needs more than sums: an entry is late or unreadable, or the sums are not
        those of a history with each version exactly once.
        """
        holes = [
            (loss.from_version, loss.to_version)
            for loss in self.losses
            if loss.from_version is not None and loss.to_version is not None and loss.code == Kind.HOLE
        ]
        missing = sum(last - first + 1 for first, last in holes)
        first = min([place for place in (self.first, *(hole[0] for hole in holes)) if place is not None], default=None)
        last = max([place for place in (self.last, *(hole[1] for hole in holes)) if place is not None], default=None)
        if first is None or last is None or self.has_late or self.unreadable:
            return None
        expected = (last - first + 1 - missing, _sums(first, last, holes))
        if (self.entries, (self.total, self.squares)) != expected:
            return None
        forks = sum(loss.code == Kind.FORK for loss in self.losses)
        return {
            "era": self.era,
            "first_version": first,
            "last_version": last,
            "entries": self.entries,
            "holes": sorted(holes),
            "missing": missing,
            "forks": forks,
            "late": 0,
            "duplicates": 0,
            "unreadable": {},
            "baselines": self.baselines,
            "complete_until_ms": complete_until_ms,
            "ok": not holes and not forks,
        }


def _sums(first: int, last: int, holes: list[tuple[int, int]]) -> tuple[int, int]:
    """The sum of the versions from the first to the last one without the holes, and that of their squared low bits."""
    total, squares = _sums_below(last + 1)
    for start, end in ((0, first - 1), *holes):
        for sign, bound in ((-1, end + 1), (1, start)):
            of_total, of_squares = _sums_below(bound)
            total, squares = total + sign * of_total, squares + sign * of_squares
    return total, squares


def _sums_below(number: int) -> tuple[int, int]:
    def squares_below(end: int) -> int:
        return (end - 1) * end * (2 * end - 1) // 6

    cycles, rest = divmod(number, 1 << _LOW_BITS)
    return number * (number - 1) // 2, cycles * squares_below(1 << _LOW_BITS) + squares_below(rest)


_LOW_BITS: Final = 16
"""A BIGINT can hold the sum of the squares of a thousand million numbers of 16 bits."""
_HALF_BITS: Final = 24
"""A version has at most 48 bits; sums of its halves fit into a BIGINT."""


@dataclass(frozen=True)
class Summary:
    first_ms: int | None
    """Time of the first entry, hole or fork, before or in the window."""
    eras: tuple[EraSummary, ...]

    @property
    def has_unreadable(self) -> bool:
        return any(era.unreadable for era in self.eras)

    @property
    def has_late(self) -> bool:
        return any(era.has_late for era in self.eras)


def summary(history: History, window: Window) -> Summary:
    """Computed once for each history and window, in one pass that shuffles a row per batch."""
    key = (Summary, window)
    if key not in history.derived:
        history.derived[key] = _summary(history, window)
    found: Summary = history.derived[key]
    return found


def batches(history: History, window: Window) -> DataFrame:
    """A row per batch, with sums over its entries in the window. Only these rows are shuffled.

    `noted_before`: the latest store time that was noted at the end of an earlier batch.
    """
    inside = is_between(window)
    is_loss = F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES)
    version = F.when(inside & ~is_loss, F.col("version"))
    low = version.bitwiseAND(F.lit((1 << _LOW_BITS) - 1))
    is_unreadable = inside & F.col("code").eqNullSafe(int(Kind.UNREADABLE))
    return (
        _heads(history, window)
        .groupBy("era", "ingested_ms")
        .agg(
            F.min("ord").alias("first_ord"),
            F.min("ms").alias("first_ms"),
            F.min(F.when(version.isNotNull(), F.col("ms"))).alias("first_entry_ms"),
            F.count_if(inside).alias("rows"),
            F.count_if(is_unreadable).alias("unreadable"),
            F.min(version).alias("first"),
            F.max(version).alias("last"),
            F.count(version).alias("entries"),
            F.sum(F.shiftright(version, _HALF_BITS)).alias("upper"),
            F.sum(version.bitwiseAND(F.lit((1 << _HALF_BITS) - 1))).alias("lower"),
            F.sum(low * low).alias("squares"),
        )
        .withColumn(
            "noted_before",
            F.max("ingested_ms").over(W.orderBy("first_ord").rowsBetween(W.unboundedPreceding, -1)),
        )
    )


def _summary(history: History, window: Window) -> Summary:
    sums = ("rows", "unreadable", "entries", "upper", "lower", "squares")
    found = (
        batches(history, window)
        .groupBy("era")
        .agg(
            F.min("first_ms").alias("first_ms"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.max(F.coalesce(F.col("first_entry_ms") < F.col("noted_before"), F.lit(False))).alias("has_late"),
            *[F.sum(name).alias(name) for name in sums],
        )
        .collect()
    )
    marks = marks_of(history).before(window.end_ms)
    return Summary(
        min((row.first_ms for row in found), default=None),
        tuple(_era_summary(row, marks, window) for row in sorted(found, key=lambda row: row.era) if row.rows),
    )


def _era_summary(row: Row, marks: Marks, window: Window) -> EraSummary:
    def is_of_era(place: Loss | Baseline) -> bool:
        return place.ord // ERA_SHIFT == row.era and window.start_ms <= place.ms < window.end_ms

    return EraSummary(
        era=row.era,
        first=row["first"],
        last=row.last,
        entries=row.entries,
        total=((row.upper or 0) << _HALF_BITS) + (row.lower or 0),
        squares=row.squares or 0,
        unreadable=row.unreadable,
        has_late=row.has_late,
        losses=tuple(filter(is_of_era, marks.losses)),
        baselines=sum(map(is_of_era, marks.baselines)),
    )


def by_version(history: History, window: Window, complete_until_ms: int) -> DataFrame:
    """The same answer, for which each version is counted."""
    ends = [one.ord for one in marks_of(history).before(window.end_ms).baselines]
    heads = _heads(history, window)
    keys = keys_of(window)
    rows = of_day(heads.where(is_between(window)), window).join(F.broadcast(_batches(heads)), "ingested_ms", "left")
    # Count each version once: duplicates are a fault of the lake and must not hide a hole.
    versions = rows.groupBy(*keys, "era", "version", "code").agg(
        F.count("*").alias("copies"),
        F.first("from_version").alias("from_version"),
        F.first("to_version").alias("to_version"),
        F.first("cause").alias("cause"),
        F.max(F.array_contains(literal_array(ends), F.col("ord"))).alias("ends_baseline"),
        F.max(F.col("ms") < F.coalesce("noted_before", F.lit(0))).alias("late"),
    )
    is_hole, is_fork = F.col("code").eqNullSafe(int(Kind.HOLE)), F.col("code").eqNullSafe(int(Kind.FORK))
    is_entry = ~is_hole & ~is_fork
    is_unreadable = F.col("code").eqNullSafe(int(Kind.UNREADABLE))
    reasons = (
        versions.where(is_unreadable)
        .groupBy(*keys, "era", F.coalesce("cause", F.lit("")).alias("cause"))
        .agg(F.count("*").alias("number"))
        .groupBy(*keys, "era")
        .agg(F.map_from_entries(F.sort_array(F.collect_list(F.struct("cause", "number")))).alias("unreadable"))
    )
    length = F.col("to_version") - F.col("from_version") + 1
    last_place = F.when(is_hole, F.col("to_version")).when(is_entry, F.col("version"))
    first_place = F.when(is_hole, F.col("from_version")).when(is_entry, F.col("version"))
    found = versions.groupBy(*keys, "era").agg(
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
        found.join(F.broadcast(reasons), [*keys, "era"], "left")
        .withColumn("ok", F.coalesce(is_ok, F.lit(False)))
        .withColumn("unreadable", F.coalesce("unreadable", nothing))
        .withColumn("complete_until_ms", F.lit(complete_until_ms)),
        INTEGRITY,
        window,
    )


def late_entries(history: History, window: Window) -> DataFrame:
    """`version`, `ms` of the entries whose time is earlier than what the store's clock had already shown."""
    heads = _heads(history, window)
    return (
        heads.where(is_between(window) & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES))
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
