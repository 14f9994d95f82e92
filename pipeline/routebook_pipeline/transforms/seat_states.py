"""The state of each seat over time.

| state | begins with |
|---|---|
| UP | codes 10, 11, 61 |
| DOWN | code 12; the cause of the first one says whether it was planned |
| UNKNOWN | a hole or fork, for every seat seen before it; at the time of the last entry before it |
| GONE | the end of a complete baseline, for a seat whose last evidence lies before the baseline's begin |

A baseline does not make a DOWN seat GONE. That the seat is not held is known already, and a crashed broker must still
count as down after the next baseline.

The rows of the history are read once and sorted once, by seat and `ord`. Losses and baselines (the *marks*) are
constants of the plan: each row finds those between itself and the seat's next evidence by two binary searches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import UNPLANNED_CAUSES, Kind
from routebook_pipeline.transforms.instants import rank
from routebook_pipeline.transforms.losses import Marks, entries_before, literal_array

UP: Final = 1
DOWN: Final = 2
UNKNOWN: Final = 3
GONE: Final = 4

REGISTRATION_CODES: Final = (int(Kind.BROKER_REGISTERED), int(Kind.BROKER_CHANGED), int(Kind.BASELINE_SEAT))
_EVIDENCE_CODES: Final = (*REGISTRATION_CODES, int(Kind.BROKER_REMOVED))


def is_evidence() -> Column:
    """The entry says whether one seat is held."""
    return (F.col("row") == 0) & F.col("code").isin(*_EVIDENCE_CODES) & F.col("broker_id").isNotNull()


def evidence(changes: DataFrame) -> DataFrame:
    return changes.where(is_evidence())


def is_up() -> Column:
    return F.col("code").isin(*REGISTRATION_CODES)


def is_unplanned() -> Column:
    return F.coalesce(F.col("cause").isin(*UNPLANNED_CAUSES), F.lit(False))


def is_hand_over() -> Column:
    """A planned DOWN that ended with an UP in the millisecond in which it began: an address was replaced, or moved. The
    seat was never absent.
    """
    is_planned_down = (F.col("state") == DOWN) & ~F.col("unplanned")
    return is_planned_down & F.col("then").eqNullSafe(UP) & F.col("end_ms").eqNullSafe(F.col("start_ms"))


SEAT: Final = ("cluster", "broker", "broker_id")
_OF_ENTRY: Final = ("addr", "timeout_ms", "last_heartbeat_ms", "lost_ms")
"""What a question may ask about the entry that began a state."""


@dataclass(frozen=True)
class _StateMark:
    """A loss or a complete baseline: the state that it causes, since when and from which entry."""

    ord: int
    ms: int
    state: int
    since: int
    """A seat is affected if its last evidence lies before this."""


class StateMarks:
    """The marks, by `ord`, and expressions about them. A mark is named by its number, from 0."""

    def __init__(self, marks: list[_StateMark]) -> None:
        self.marks = marks
        # For each mark: the first loss from there on, and the first mark of the other kind; or len(marks).
        self._next_loss = [len(marks)] * (len(marks) + 1)
        self._next_other = [len(marks)] * (len(marks) + 1)
        for at in reversed(range(len(marks))):
            self._next_loss[at] = at if marks[at].state == UNKNOWN else self._next_loss[at + 1]
            repeats = at + 1 < len(marks) and marks[at + 1].state == marks[at].state
            self._next_other[at] = self._next_other[at + 1] if repeats else at + 1

    @classmethod
    def of(cls, changes: DataFrame, marks: Marks) -> "StateMarks":
        starts = entries_before(changes, marks.losses)
        lost = [_StateMark(loss.ord, starts.get(loss.ord, (0, loss.ms))[1], UNKNOWN, loss.ord) for loss in marks.losses]
        complete = [_StateMark(one.ord, one.ms, GONE, one.begin) for one in marks.baselines]
        return cls(sorted([*lost, *complete], key=lambda mark: mark.ord))

    def __bool__(self) -> bool:
        return bool(self.marks)

    def first(self) -> Column:
        """The first mark that affects the seat of this evidence. A baseline does not affect a DOWN seat, unless a loss
        has made its state unknown.
        """
        after = rank("ord", [mark.since for mark in self.marks])
        return F.when(F.col("state") == DOWN, F.get(literal_array(self._next_loss), after)).otherwise(after)

    def stop(self) -> Column:
        """The first mark after the seat's next evidence."""
        return F.when(F.col("next_ord").isNull(), F.lit(len(self.marks))).otherwise(
            rank("next_ord", [mark.ord for mark in self.marks])
        )

    def ms(self, number: Column) -> Column:
        return F.get(literal_array(mark.ms for mark in self.marks), number)

    def state(self, number: Column) -> Column:
        return F.get(literal_array((mark.state for mark in self.marks), "int"), number)

    def steps(self) -> Column:
        """The changes of state by the marks from `first_mark` to before `stop_mark`, as in `_steps_of_evidence`."""
        marks = ", ".join(
            f"named_struct('number', {number}, 'ord', {mark.ord}L, 'ms', {mark.ms}L, 'state', {mark.state}, 'other',"
            f" {self._next_other[number]})"
            for number, mark in enumerate(self.marks)
        )
        between = F.slice(F.expr(f"array({marks})"), F.col("first_mark") + 1, F.col("stop_mark") - F.col("first_mark"))
        # Of several marks in a row with the same effect, only the first one changes the state.
        effective = F.filter(
            between,
            lambda mark: (mark["number"] == F.col("first_mark")) | (self.state(mark["number"] - 1) != mark["state"]),
        )

        def step(mark: Column) -> Column:
            is_followed = mark["other"] < F.col("stop_mark")
            is_first = mark["number"] == F.col("first_mark")
            return F.struct(
                mark["ord"].alias("ord"),
                mark["ms"].alias("start_ms"),
                mark["state"].alias("state"),
                F.lit(False).alias("unplanned"),
                F.lit(None).cast("string").alias("cause"),
                F.when(is_first, F.col("state")).otherwise(self.state(mark["number"] - 1)).alias("before"),
                F.when(is_followed, self.ms(mark["other"])).otherwise(F.col("next_ms")).alias("end_ms"),
                F.when(is_followed, self.state(mark["other"])).otherwise(F.col("next_state")).alias("then"),
            )

        return F.transform(effective, step)


def evidence_in_order(changes: DataFrame, marks: StateMarks) -> DataFrame:
    """Every evidence, with `state`, `unplanned`, `before` (the state before it, null for the seat's first one),
    `first_mark` and `stop_mark`: the marks that change the state between this evidence and the next one.
    """
    in_order = W.partitionBy("seat_key").orderBy("ord")
    found = evidence(changes).select(
        "seat_key",
        "group_key",
        *SEAT,
        "ord",
        "ms",
        "cause",
        *_OF_ENTRY,
        F.when(is_up(), F.lit(UP)).otherwise(F.lit(DOWN)).alias("state"),
        is_unplanned().alias("unplanned"),
    )
    if not marks:
        last = F.col("state")
        found = found.withColumns({"first_mark": F.lit(0), "stop_mark": F.lit(0)})
    else:
        last = F.when(has_marks(), marks.state(F.col("stop_mark") - 1)).otherwise(F.col("state"))
        found = found.withColumn("next_ord", F.lead("ord").over(in_order)).withColumns(
            {"first_mark": marks.first().cast("int"), "stop_mark": marks.stop().cast("int")}
        )
    return found.withColumn("last_state", last).withColumn("before", F.lag("last_state").over(in_order))


def has_marks() -> Column:
    return F.col("first_mark") < F.col("stop_mark")


def is_change() -> Column:
    """The evidence changes the seat's state."""
    return F.col("before").isNull() | (F.col("before") != F.col("state"))


def left_up_ms(marks: StateMarks) -> Column:
    """When the seat left UP, if this evidence or the marks after it made it so."""
    by_entry = F.when((F.col("state") == DOWN) & (F.col("before") == UP), F.col("ms"))
    if not marks:
        return by_entry
    return F.when((F.col("state") == UP) & has_marks(), marks.ms(F.col("first_mark"))).otherwise(by_entry)


def state_changes(rows: DataFrame, marks: StateMarks, columns: Iterable[str] = ()) -> DataFrame:
    """Every change of a seat's state, with `start_ms`, `end_ms`, and the states `before` and `then`.

    `columns`: others of the evidence to keep.
    """
    names = ["seat_key", "group_key", *SEAT, *_OF_ENTRY, *columns]
    in_order = W.partitionBy("seat_key").orderBy("ord")
    if not marks:
        return rows.where(is_change()).select(
            *names,
            "ord",
            F.col("ms").alias("start_ms"),
            "state",
            "unplanned",
            "cause",
            "before",
            F.lead("ms").over(in_order).alias("end_ms"),
            F.lead("state").over(in_order).alias("then"),
        )
    first_mark = F.col("first_mark")
    kept = (
        rows.where(is_change() | has_marks())
        .withColumns(
            {
                "own_first_ms": F.when(is_change(), F.col("ms")).otherwise(marks.ms(first_mark)),
                "own_first_state": F.when(is_change(), F.col("state")).otherwise(marks.state(first_mark)),
            }
        )
        .withColumns(
            {
                "next_ms": F.lead("own_first_ms").over(in_order),
                "next_state": F.lead("own_first_state").over(in_order),
            }
        )
    )
    own = F.struct(
        "ord",
        F.col("ms").alias("start_ms"),
        "state",
        "unplanned",
        "cause",
        "before",
        F.when(has_marks(), marks.ms(first_mark)).otherwise(F.col("next_ms")).alias("end_ms"),
        F.when(has_marks(), marks.state(first_mark)).otherwise(F.col("next_state")).alias("then"),
    )
    steps = (
        F.when(~has_marks(), F.array(own))
        .when(is_change(), F.concat(F.array(own), marks.steps()))
        .otherwise(marks.steps())
    )
    return kept.select(*names, F.inline(steps))
