"""Which questions there are. Nothing of Spark here: help texts, completion and usage errors come from this list.

What is asked for each (question, level) is in `asking.py`; a test holds the two together.
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
    """What a row is about; the first is the default."""
    pulses: bool = False
    """Also rests on the heartbeat gaps, not only on the changes."""
    days_before: bool = False
    """Compares with hours before the window (`churn_hours_before`)."""

    def lookback_ms(self, thresholds: Thresholds) -> int:
        return thresholds.churn_hours_before * HOUR_MS if self.days_before else 0

    def resolve_level(self, given: str | None) -> str:
        if given is None:
            return self.levels[0]
        if given not in self.levels:
            raise WrongUsageError(f"{self.name} cannot be told by {given!r}. Allowed: {', '.join(self.levels)}.")
        return given


_ALL: Final = (
    Question("route", "every topic's queues and addresses at the end of the window", ("topic",)),
    Question("route-diff", "what differs between the start and the end of the window", ("topic",)),
    Question("availability", "time up and down, and whether the objective was met", ("cluster", "group", "seat")),
    Question("failures", "how often, why, time between and time to repair", ("cluster", "seat")),
    Question("flaps", "short downs and their episodes", ("seat",)),
    Question("heartbeat-gaps", "how regularly heartbeats came", ("cluster", "seat"), pulses=True),
    Question("churn", "topics created, removed, resized", ("cluster",)),
    Question("capacity", "queues, skew and the largest topic, each midnight and at the end", ("cluster",)),
    Question("exposure", "how long dead addresses were handed out", ("cluster", "group")),
    Question("failovers", "changes of masters, and time without one", ("each", "group")),
    Question("anomalies", "what an operator should look at", ("finding",), pulses=True, days_before=True),
    Question("integrity", "what all answers rest on: holes, forks, unreadable entries", ("era",)),
)

QUESTIONS: Final = {question.name: question for question in _ALL}


def find_question(name: str) -> Question | None:
    return QUESTIONS.get(name.replace("_", "-"))
