"""The list of questions. It imports nothing of Spark, since help texts, completion and usage errors use it.

`computation.COMPUTATIONS` says what is computed for each (question, level); a test compares the two.
"""

from dataclasses import dataclass
from typing import Final

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

    def lookback_ms(self, thresholds: Thresholds) -> int:
        return thresholds.churn_hours_before * HOUR_MS if self.days_before else 0

    def resolve_level(self, given: str | None) -> str:
        if given is None:
            return self.levels[0]
        if given not in self.levels:
            raise WrongUsageError(f"{self.name} has no level {given!r}. Allowed: {', '.join(self.levels)}.")
        return given


_ALL: Final = (
    Question("route", "every topic's queues and addresses at the end of the window", ("topic",)),
    Question("route-diff", "route changes between the start and the end of the window", ("topic",)),
    Question("availability", "time up and down, and whether the objective was met", ("cluster", "group", "seat")),
    Question("failures", "number and causes of failures, time between them, time to repair", ("cluster", "seat")),
    Question("flaps", "short downtimes, and episodes of repeated ones", ("seat",)),
    Question("heartbeat-gaps", "how regularly heartbeats arrived", ("cluster", "seat"), pulses=True),
    Question("churn", "topics created, removed, resized", ("cluster",)),
    Question("capacity", "queues, skew and the largest topic, each midnight and at the end", ("cluster",)),
    Question("exposure", "how long routes contained the addresses of dead brokers", ("cluster", "group")),
    Question("failovers", "changes of masters, and time without a master", ("each", "group")),
    Question("anomalies", "what an operator should look at", ("finding",), pulses=True, days_before=True),
    Question("integrity", "whether the history is whole: holes, forks, unreadable entries", ("era",)),
)

QUESTIONS: Final = {question.name: question for question in _ALL}


def find_question(name: str) -> Question | None:
    return QUESTIONS.get(name.replace("_", "-"))
