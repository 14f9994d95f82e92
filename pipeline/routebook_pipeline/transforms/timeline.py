"""What a history says about its seats and queues until the end of a window, for all questions about that window.

Every frame here reads the history once. Spark leaves out the columns that a question does not use.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, DAY_NUMBER, DEFAULTS, Days, History, Thresholds, Window
from routebook_pipeline.transforms.frames import before_end, end_of, is_between, start_of
from routebook_pipeline.transforms.losses import Marks, marks_of
from routebook_pipeline.transforms.route_table import queue_line
from routebook_pipeline.transforms.seat_states import (
    DOWN,
    UP,
    StateMarks,
    evidence_in_order,
    has_marks,
    is_change,
    left_up_ms,
    state_changes,
)


@dataclass(frozen=True)
class Timeline:
    history: History
    window: Window
    thresholds: Thresholds

    @classmethod
    def of(cls, history: History, window: Window, thresholds: Thresholds = DEFAULTS) -> "Timeline":
        """The questions about one history and window share one."""
        key = (cls, window, thresholds)
        if key not in history.derived:
            history.derived[key] = cls(history, window, thresholds)
        found: Timeline = history.derived[key]
        return found

    @cached_property
    def changes(self) -> DataFrame:
        return before_end(self.history.changes, self.window)

    @cached_property
    def marks(self) -> Marks:
        return marks_of(self.history).before(self.window.end_ms)

    @cached_property
    def state_marks(self) -> StateMarks:
        return StateMarks.of(self.changes, self.marks)

    @cached_property
    def evidence(self) -> DataFrame:
        """Every evidence of every seat, with the seat's state before it, and the marks that follow it.

        `is_failover`: another address became the master of the group, in the window. `from_address`: the one before.
        `gap_ms`: how long the seat was not UP.
        """
        until_now = W.partitionBy("seat_key").orderBy("ord").rowsBetween(W.unboundedPreceding, -1)
        registered_address = F.when(F.col("state") == UP, F.col("addr"))
        # If the registration does not change the seat's state, it took over from a seat that was UP, without a gap.
        gap_ms = F.coalesce(F.when(is_change(), F.col("ms") - F.col("left_ms")), F.lit(0))
        is_failover = (
            (F.col("broker_id") == 0)
            & (F.col("state") == UP)
            & (F.col("from_address") != F.col("addr"))
            & is_between(self.window)
        )
        return (
            evidence_in_order(self.changes, self.state_marks)
            .withColumns(
                {
                    "from_address": F.last(registered_address, ignorenulls=True).over(until_now),
                    "left_ms": F.last(left_up_ms(self.state_marks), ignorenulls=True).over(until_now),
                }
            )
            .withColumns({"gap_ms": gap_ms, "is_failover": F.coalesce(is_failover, F.lit(False))})
        )

    @cached_property
    def intervals(self) -> DataFrame:
        """The stretches of time during which a seat was in one state.

        `ord`: the place of the entry that began it. `unplanned`, `cause`: from the first entry of a DOWN. `start_ms`,
        `end_ms`: the whole interval; `end_ms` is null if the state lasted until the end of the window. `before`,
        `then`: the states before and after it. `from_ms`, `to_ms`, `length_ms`: the part that counts, which lies inside
        the window; a DOWN counts for at most `retire_after_ms`.
        """
        return self.intervals_of(self.evidence)

    @cached_property
    def each_interval(self) -> DataFrame:
        """Every interval once, also if it lasts for several of the days."""
        if not isinstance(self.window, Days):
            return self.intervals
        is_first_day = F.col("from_ms") == F.greatest("start_ms", F.lit(self.window.start_ms))
        return self.intervals.where(is_first_day)

    def intervals_of(self, evidence: DataFrame, columns: Iterable[str] = ()) -> DataFrame:
        """`columns`: others of the evidence to keep. They are those of the seat's last evidence.

        With several days, an interval has a row for each day that it touches.
        """
        found = state_changes(evidence, self.state_marks, columns)
        if isinstance(self.window, Days):
            found = _for_each_day(found, self.window)
        end_of_window = end_of(self.window)
        end = F.least(F.coalesce("end_ms", end_of_window), end_of_window)
        retired = F.col("start_ms") + F.lit(self.thresholds.retire_after_ms)
        counted_end = F.when(F.col("state") == DOWN, F.least(end, retired)).otherwise(end)
        return (
            found.withColumn("from_ms", F.greatest("start_ms", start_of(self.window)))
            .withColumn("to_ms", counted_end)
            .withColumn("length_ms", F.greatest(F.lit(0), F.col("to_ms") - F.col("from_ms")))
        )

    @cached_property
    def queues(self) -> DataFrame:
        """Every item of every queue entry, with what ends it."""
        return queue_line(self.changes, self.marks)

    def persist(self) -> None:
        """Keeps what several questions, or several rules of one, need: the evidence that changes something, and the
        items. `release` gives the memory back.
        """
        if (_Persisted, self.window, self.thresholds) in self.history.derived:
            return
        changes_something = is_change() | has_marks() | F.col("is_failover")
        kept = (self.evidence.where(changes_something).persist(), self.queues.persist())
        # A cached property keeps its value in the instance; the intervals may be those of the evidence before.
        self.__dict__.pop("intervals", None)
        self.__dict__["evidence"], self.__dict__["queues"] = kept
        self.history.derived[_Persisted, self.window, self.thresholds] = _Persisted(kept)


def _for_each_day(intervals: DataFrame, days: Days) -> DataFrame:
    """An interval that does not end on a day has no end there, as if later entries were not known yet."""

    def day(ms: Column) -> Column:
        return F.floor(ms / DAY_MS)

    first_ms, last_ms = F.lit(days.start_ms), F.lit(days.end_ms - 1)
    first = day(F.greatest(F.col("start_ms"), first_ms))
    # An empty interval belongs to the day of its start.
    last = day(F.greatest(F.col("start_ms"), F.least(F.coalesce(F.col("end_ms") - 1, last_ms), last_ms)))
    is_known = F.col("end_ms") < end_of(days)
    return intervals.withColumn(DAY_NUMBER, F.explode(F.when(first <= last, F.sequence(first, last)))).withColumns(
        {name: F.when(is_known, F.col(name)) for name in ("then", "end_ms")}
    )


@dataclass(frozen=True)
class _Persisted:
    frames: tuple[DataFrame, ...]


def release(history: History) -> None:
    """Ends what `Timeline.persist` keeps."""
    for key, kept in list(history.derived.items()):
        if isinstance(kept, _Persisted):
            del history.derived[key]
            for frame in kept.frames:
                frame.unpersist()
