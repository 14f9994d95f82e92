"""What happened to every lookup and registration, and how it is judged."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final, Literal

Kind = Literal["follows", "retries"]
"""Clients that follow GO_AWAY, and those that do not know it and try again."""
KINDS: Final[tuple[Kind, ...]] = ("follows", "retries")
PATIENCE_S: Final = 30.0
"""How long a lookup is tried again before it counts as lost."""
LAST_TRY_S: Final = 10.0
"""More than the last try of a lost lookup takes: three seconds each to connect and to be answered."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fleet sets out to do: a scenario in which much less happened has shown nothing."""

    clients_of_each_kind: int
    lookups_per_second: float
    """Of each client."""
    brokers: int
    register_period_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that failed. `at` and `began` are monotonic."""

    at: float
    who: str
    kind: Kind
    how: str
    attempt: int
    """1: the first try of a lookup."""
    began: float
    """When its lookup did."""


@dataclass(frozen=True, slots=True)
class Blank:
    """An answer that a healthy fleet must never get: no such topic, a route without its broker, or no route at all."""

    at: float
    who: str
    said: str


@dataclass(frozen=True, slots=True)
class Registration:
    began: float
    at: float
    who: str
    how: str
    """`ok`, or how it failed."""


@dataclass
class Record:
    """Only ever appended to; a reader in another thread sees whole entries."""

    answered: Counter[Kind] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    under_way: dict[str, float] = field(default_factory=dict)
    """Client → since when its lookup has been waiting or been tried again."""
    failures: list[Failure] = field(default_factory=list)
    lost: list[Failure] = field(default_factory=list)
    """Lookups that still failed after all their tries."""
    blanks: list[Blank] = field(default_factory=list)
    moves: int = 0
    slowest: list[tuple[float, float]] = field(default_factory=list)
    """(when, seconds) of lookups that took more than a second, retries included."""
    registrations: list[Registration] = field(default_factory=list)
    writes: list[Registration] = field(default_factory=list)
    """Of the one that writes ten times a second, where a fleet has it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Of writes, as one sees it that writes ten times a second. Seconds are since the begin of the window."""

    refused: int
    """Or failed in another way."""
    last_refusal_s: float
    back_s: float
    """When the first one was taken after the last refusal; infinite: none was."""
    longest_pause_s: float
    """From the begin, or from one that was taken, to the next that was."""

    def describe(self) -> dict[str, object]:
        return {
            "writes refused or failed": self.refused,
            "last one refused after s": self.last_refusal_s,
            "writes back after s": self.back_s,
            "longest time without a write, s": self.longest_pause_s,
        }


@dataclass(frozen=True)
class Window:
    """What a record says of one stretch of time: of what began in it, or was under way when it did."""

    plan: Plan
    answered: dict[Kind, int]
    failures: list[Failure]
    lost: list[Failure]
    blanks: list[Blank]
    moves: int
    slowest_s: float
    registrations: list[Registration]
    writes: list[Registration]
    began: float
    seconds: float

    def due_of_each_kind(self) -> float:
        """Lookups, if each client kept its pace."""
        return self.plan.clients_of_each_kind * self.plan.lookups_per_second * self.seconds

    def due_registrations(self) -> float:
        return self.plan.brokers * self.seconds / self.plan.register_period_s

    @property
    def registered(self) -> int:
        return sum(1 for one in self.registrations if one.how == "ok")

    @property
    def not_registered(self) -> Counter[str]:
        return Counter(one.how for one in self.registrations if one.how != "ok")

    def failed_first(self, *kinds: Kind) -> int:
        """Lookups whose first try failed."""
        return sum(1 for one in self.failures if one.kind in kinds and one.attempt == 1)

    @property
    def most_tries_failed(self) -> int:
        return max((one.attempt for one in self.failures), default=0)

    @property
    def failing_s(self) -> float:
        """From the begin of the window to the last try that failed."""
        return max((one.at - self.began for one in self.failures), default=0.0)

    def outage(self) -> Outage:
        taken = sorted(one.at for one in self.writes if one.how == "ok")
        refused = [one.at for one in self.writes if one.how != "ok"]
        last = max(refused, default=self.began)
        return Outage(
            refused=len(refused),
            last_refusal_s=last - self.began,
            back_s=next((at - self.began for at in taken if at >= last), inf),
            longest_pause_s=max((later - earlier for earlier, later in pairwise([self.began, *taken])), default=inf),
        )

    def describe(self) -> dict[str, object]:
        return {
            "seconds": round(self.seconds, 1),
            "lookups": sum(self.answered.values()),
            "moves followed": self.moves,
            "first tries failed, clients that follow GO_AWAY": self.failed_first("follows"),
            "first tries failed, other clients": self.failed_first("retries"),
            "most tries one lookup needed": self.most_tries_failed + 1,
            "how": dict(Counter(one.how for one in self.failures)),
            "last failed try after s": round(self.failing_s, 1),
            "lookups lost": len(self.lost),
            "blank answers": len(self.blanks),
            "slowest lookup s": round(self.slowest_s, 1) if self.slowest_s else "< 1",
            "registrations": self.registered,
            "registrations failed": dict(self.not_registered),
        }


class Stretch:
    """Begins now; `end` gives what has happened since."""

    def __init__(self, record: Record, plan: Plan) -> None:
        self._record = record
        self._plan = plan
        self.began = time.monotonic()
        self._answered = Counter(record.answered)
        self._moves = record.moves

    def end(self) -> Window:
        """Returns when every lookup begun until now is answered or has had its patience: before, none can be lost."""
        record, began, ended = self._record, self.began, time.monotonic()
        answered = {kind: count - self._answered[kind] for kind, count in dict(record.answered).items()}
        moves = record.moves - self._moves
        self._wait_for_whatever_began_before(ended)
        return Window(
            plan=self._plan,
            answered=answered,
            failures=[one for one in list(record.failures) if one.at >= began and one.began <= ended],
            lost=[one for one in list(record.lost) if one.at >= began and one.began <= ended],
            blanks=[one for one in list(record.blanks) if one.at >= began],
            moves=moves,
            slowest_s=max((seconds for at, seconds in list(record.slowest) if at >= began), default=0.0),
            registrations=_between(began, ended, record.registrations),
            writes=_between(began, ended, record.writes),
            began=began,
            seconds=ended - began,
        )

    def _wait_for_whatever_began_before(self, instant: float) -> None:
        deadline = instant + PATIENCE_S + LAST_TRY_S
        while waiting := [who for who, began in dict(self._record.under_way).items() if began <= instant]:
            assert time.monotonic() < deadline, f"{waiting}: neither answered nor lost after {PATIENCE_S} s"
            time.sleep(0.01)


def _between(began: float, ended: float, registrations: Iterable[Registration]) -> list[Registration]:
    return [one for one in list(registrations) if began <= one.at <= ended]
