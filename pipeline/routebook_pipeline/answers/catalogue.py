"""The list of questions. It imports nothing of Spark, since help texts, completion and usage errors use it.

`computation.COMPUTATIONS` says what is computed for each (question, level); a test compares the two.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.history import HOUR_MS, Thresholds


@dataclass(frozen=True)
class Question:
    name: str
    description: str
    levels: tuple[str, ...]
    """What one row of the answer describes; the first level is the default."""
    pulses: bool = False
    """Whether it needs the heartbeat gaps besides the changes."""
    days_before: bool = False
    """Whether it compares with the hours before the window (`churn_hours_before`)."""
    worst: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Level -> what its rows are sorted by for `--worst-first`: expressions of SQL. A `-` in front of one means that
    the highest value comes first. Rows without a value come last.
    """

    def lookback_ms(self, thresholds: Thresholds) -> int:
        return thresholds.churn_hours_before * HOUR_MS if self.days_before else 0

    def resolve_level(self, given: str | None) -> str:
        if given is None:
            return self.levels[0]
        if given not in self.levels:
            raise WrongUsageError(f"{self.name} has no level {given!r}. Allowed: {', '.join(self.levels)}.")
        return given


@dataclass(frozen=True)
class RowSelection:
    """The rows of an answer to show: those about one cluster, broker or topic, and only the first ones."""

    cluster: str | None = None
    broker: str | None = None
    topic: str | None = None
    top: int | None = None
    worst_first: bool = False
    after_ord: int | None = None
    """`events`: only entries after this one, which `--follow` has shown already."""

    @property
    def names(self) -> dict[str, str]:
        """Column -> the value that its rows must have."""
        given = {"cluster": self.cluster, "broker": self.broker, "topic": self.topic}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def metadata(self) -> dict[str, Any]:
        """What was chosen, for the answer in JSON."""
        chosen = self.names | ({"top": self.top} if self.top is not None else {})
        return chosen | ({"worst_first": True} if self.worst_first else {})

    def check(self, question: Question, level: str, columns: Collection[str]) -> None:
        """WrongUsageError if the rows of this answer have no such column."""
        known = {"cluster", "broker"} if SUBJECT in columns else set(columns)
        wrong = [f"--{name}" for name in self.names if name not in known]
        if wrong:
            others = ", ".join(f"--by {other}" for other in question.levels if other != level)
            raise WrongUsageError(
                f"{', '.join(wrong)} cannot select rows of {question.name} by {level}: they do not name one."
                + (f" Another level may: {others}." if others else "")
            )


EVERYTHING: Final = RowSelection()
SUBJECT: Final = "subject"
"""The column of `anomalies` that names a cluster, `cluster/broker` or `cluster/broker/id`."""

_ALL: Final = (
    Question(
        "route",
        "every topic's queues and addresses at the end of the window",
        ("topic",),
        worst={"topic": ("perm", "write_queues")},
    ),
    Question(
        "route-diff",
        "route changes between the start and the end of the window",
        ("topic",),
        worst={"topic": ("instr('removed changed added', difference)", "-entry_count")},
    ),
    Question(
        "availability",
        "time up and down, and whether the objective was met",
        ("cluster", "group", "seat"),
        worst=dict.fromkeys(("cluster", "group", "seat"), ("availability", "-unplanned_ms")),
    ),
    Question(
        "failures",
        "number and causes of failures, time between them, time to repair",
        ("cluster", "seat"),
        worst=dict.fromkeys(("cluster", "seat"), ("-unplanned", "-planned")),
    ),
    Question("flaps", "short downtimes, and episodes of repeated ones", ("seat",), worst={"seat": ("-flaps",)}),
    Question(
        "heartbeat-gaps",
        "how regularly heartbeats arrived",
        ("cluster", "seat"),
        pulses=True,
        worst=dict.fromkeys(("cluster", "seat"), ("-late_share", "-max_ms")),
    ),
    Question("churn", "topics created, removed, resized", ("cluster",), worst={"cluster": ("-rate",)}),
    Question(
        "capacity",
        "queues, skew and the largest topic, each midnight and at the end",
        ("cluster",),
        worst={"cluster": ("-peak",)},
    ),
    Question(
        "exposure",
        "how long routes contained the addresses of dead brokers",
        ("cluster", "group"),
        worst={"cluster": ("-detection_ms",), "group": ("-exposed_ms",)},
    ),
    Question(
        "failovers",
        "changes of masters, and time without a master",
        ("each", "group"),
        worst={"each": ("-gap_ms",), "group": ("-headless_ms", "-longest_gap_ms")},
    ),
    Question(
        "anomalies",
        "what an operator should look at",
        ("finding",),
        pulses=True,
        days_before=True,
        worst={"finding": ("instr('critical warning info', severity)", "-try_divide(value, threshold)", "-value")},
    ),
    Question(
        "integrity",
        "whether the history is whole: holes, forks, unreadable entries",
        ("era",),
        worst={"era": ("-missing", "-forks")},
    ),
    Question(
        "events",
        "what happened, who did it and why, with the values before and after",
        ("event",),
        # Losses of entries and of brokers, then everything else; the newest first.
        worst={
            "event": (
                "NOT kind IN ('hole', 'fork', 'unreadable')",
                "NOT coalesce(cause, '') IN ('expired', 'connection-lost')",
                "kind != 'broker-removed'",
                "-ms",
            )
        },
    ),
)

QUESTIONS: Final = {question.name: question for question in _ALL}


def find_question(name: str) -> Question | None:
    return QUESTIONS.get(name.replace("_", "-"))
