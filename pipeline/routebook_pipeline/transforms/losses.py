"""The entries that affect every seat and queue at once: losses (holes and forks) and complete baselines.

After a loss nothing is known until newer entries say it again. At the end of a baseline, everything that the baseline
did not name is gone.

A baseline is complete if it has a begin and an end, and neither a hole nor a fork lies between them: a missing entry
might have named a seat. A baseline that never ends has no effect.

There are few of these entries: a baseline a day, and hardly any loss. So they are collected before a question is
planned, and the plan has them as constants. To find them, Spark opens only the pages of the files whose statistics
allow for their codes. Without this, every question would join all its rows with them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import History, Instant
from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Instants, rank

LOSSES: Final = (int(Kind.HOLE), int(Kind.FORK))
_BEGIN, _END, _PAUSED = int(Kind.BASELINE_BEGIN), int(Kind.BASELINE_END), int(Kind.EXPIRY_PAUSED)
_CODES: Final = (*LOSSES, _BEGIN, _END, _PAUSED)


@dataclass(frozen=True)
class Loss:
    ord: int
    ms: int
    code: int
    from_version: int | None
    to_version: int | None

    @property
    def missing(self) -> int:
        """The number of versions in a hole."""
        return (self.to_version or 0) - (self.from_version or 0) + 1


@dataclass(frozen=True)
class Baseline:
    """A complete one; `ord` and `ms` are those of its end."""

    begin: int
    ord: int
    ms: int


@dataclass(frozen=True)
class _Row:
    ord: int
    ms: int
    code: int
    from_version: int | None
    to_version: int | None
    from_ms: int | None
    to_ms: int | None


@dataclass(frozen=True)
class Marks:
    """The rows of a history that are about the whole namespace, by `ord`."""

    rows: tuple[_Row, ...]

    def before(self, end_ms: int) -> "Marks":
        return replace(self, rows=tuple(row for row in self.rows if row.ms < end_ms))

    def visible_at(self, instant: Instant) -> "Marks":
        if instant.ord is not None:
            last = instant.ord
            return replace(self, rows=tuple(row for row in self.rows if row.ord <= last))
        if instant.ms is None:
            raise ValueError("an instant has neither ms nor ord: one of them must be set")
        return self.before(instant.ms + 1)

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        lost = (row for row in self.rows if row.code in LOSSES)
        return tuple(Loss(row.ord, row.ms, row.code, row.from_version, row.to_version) for row in lost)

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        found, begin = [], None
        for row in self.rows:
            if row.code == _BEGIN:
                begin = row.ord
            elif row.code != _PAUSED:
                if row.code == _END and begin is not None:
                    found.append(Baseline(begin, row.ord, row.ms))
                begin = None
        return tuple(found)

    @cached_property
    def open_begin(self) -> int | None:
        """The begin of a baseline that has not ended yet, if the history ends inside one."""
        last = next((row for row in reversed(self.rows) if row.code != _PAUSED), None)
        return last.ord if last is not None and last.code == _BEGIN else None

    @property
    def last_begin(self) -> int | None:
        """The begin of the last complete baseline."""
        return self.baselines[-1].begin if self.baselines else None

    @property
    def unrepaired(self) -> tuple[Loss, ...]:
        """The losses that no complete baseline has repaired."""
        since = -1 if self.last_begin is None else self.last_begin
        return tuple(loss for loss in self.losses if loss.ord > since)

    @property
    def pauses(self) -> list[tuple[int, int]]:
        """When expiry was paused: from, to."""
        return [(row.from_ms or 0, row.to_ms or 0) for row in self.rows if row.code == _PAUSED]


def marks_of(history: History) -> Marks:
    """Collected once for each history."""
    if Marks not in history.derived:
        history.derived[Marks] = collect_marks(history.changes)
    found: Marks = history.derived[Marks]
    return found


def collect_marks(changes: DataFrame) -> Marks:
    names = tuple(_Row.__dataclass_fields__)
    rows = changes.where(F.col("code").isin(*_CODES) & (F.col("row") == 0)).select(*names).collect()
    return Marks(tuple(sorted((_Row(*row) for row in rows), key=lambda row: row.ord)))


def is_entry() -> Column:
    """Row 0 of an entry that the service wrote, readable or not. A hole or fork is not an entry."""
    return (F.col("row") == 0) & ~F.coalesce(F.col("code"), F.lit(0)).isin(*LOSSES)


def entries_before(changes: DataFrame, losses: Sequence[Loss]) -> dict[int, tuple[int, int]]:
    """`ord` of a loss -> `ord` and `ms` of the last entry before it. Nothing is known from that entry on.

    A loss without an entry before it is left out. The last entry between two losses is found in one pass.
    """
    if not losses:
        return {}
    ords = [loss.ord for loss in losses]
    found = (
        changes.where(is_entry() & (F.col("ord") < F.lit(ords[-1])))
        .groupBy(rank("ord", ords).alias("place"))
        .agg(F.max("ord").alias("entry"), F.max_by("ms", "ord").alias("ms"))
        .collect()
    )
    last_of_place = {row.place: (row.entry, row.ms) for row in found}
    before: dict[int, tuple[int, int]] = {}
    last = None
    for place, ord_ in enumerate(ords):
        last = last_of_place.get(place, last)
        if last is not None:
            before[ord_] = last
    return before


@dataclass(frozen=True)
class Validity:
    """Which earlier rows are still valid at an instant."""

    last_loss_ord: int | None
    baseline_begin: int | None
    """The begin of the last complete baseline; what no entry has named since then is gone."""
    doubt_from_version: int | None
    doubt_to_version: int | None
    """The missing versions that no baseline has repaired yet."""
    certain: bool


def validity(marks: Marks) -> Validity:
    """At the end of these marks."""
    lost = marks.unrepaired
    return Validity(
        marks.losses[-1].ord if marks.losses else None,
        marks.last_begin,
        min((loss.from_version for loss in lost if loss.from_version is not None), default=None),
        max((loss.to_version for loss in lost if loss.to_version is not None), default=None),
        not lost,
    )


def with_validity(rows: DataFrame, marks: Marks, instants: Instants) -> DataFrame:
    """The rows with the fields of `Validity` at the instant number `at` of each row."""
    at_each = [validity(marks.visible_at(instant)) for instant in instants.ordered]
    kinds = dict.fromkeys(Validity.__dataclass_fields__, "bigint") | {"certain": "boolean"}
    if len(set(at_each)) == 1:
        return rows.withColumns({name: F.lit(getattr(at_each[0], name)).cast(kind) for name, kind in kinds.items()})
    table = {name: literal_array([getattr(each, name) for each in at_each], kind) for name, kind in kinds.items()}
    return rows.withColumns({name: F.get(values, F.col("at")) for name, values in table.items()})


def literal_array(values: Iterable[int | bool | None], kind: str = "bigint") -> Column:
    """A constant array. As text, because each literal column would be a call to Java."""
    texts = ("NULL" if value is None else str(value) for value in values)
    return F.expr(f"CAST(array({', '.join(texts)}) AS array<{kind}>)")
