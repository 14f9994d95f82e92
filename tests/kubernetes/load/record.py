"""What happened to every lookup and registration, and how it is judged."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["follows", "retries"]
"""Clients that follow GO_AWAY, and those that do not know it and try again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that failed. `at` is monotonic."""

    at: float
    who: str
    kind: Kind
    how: str
    attempt: int
    """1: the first try of a lookup."""


@dataclass(frozen=True, slots=True)
class Blank:
    """An answer that a healthy fleet must never get: no such topic, or a route without its broker."""

    at: float
    who: str
    said: str


@dataclass
class Record:
    """Only ever appended to; a reader in another thread sees whole entries."""

    lookups: Counter[Kind] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    lost: list[Failure] = field(default_factory=list)
    """Lookups that still failed after all their tries."""
    blanks: list[Blank] = field(default_factory=list)
    moves: int = 0
    slowest: list[tuple[float, float]] = field(default_factory=list)
    """(when, seconds) of lookups that took more than a second, retries included."""
    registrations: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, broker, "ok" or how it failed)."""


@dataclass(frozen=True)
class Window:
    """What a record says of one stretch of time."""

    lookups: dict[Kind, int]
    failures: list[Failure]
    lost: list[Failure]
    blanks: list[Blank]
    moves: int
    slowest_s: float
    registered: int
    not_registered: Counter[str]
    began: float
    seconds: float

    def failed_first(self, kind: Kind) -> int:
        """Lookups whose first try failed."""
        return sum(1 for one in self.failures if one.kind == kind and one.attempt == 1)

    @property
    def most_tries_failed(self) -> int:
        return max((one.attempt for one in self.failures), default=0)

    @property
    def failing_s(self) -> float:
        """From the begin of the window to the last try that failed."""
        return max((one.at - self.began for one in self.failures), default=0.0)

    def failures_before(self, instant: float) -> int:
        return sum(1 for one in self.failures if one.at < instant)

    def describe(self) -> dict[str, object]:
        return {
            "seconds": round(self.seconds, 1),
            "lookups": sum(self.lookups.values()),
            "first tries failed, clients that follow GO_AWAY": self.failed_first("follows"),
            "first tries failed, other clients": self.failed_first("retries"),
            "most tries one lookup needed": self.most_tries_failed + 1,
            "how": dict(Counter(one.how for one in self.failures)),
            "last failed try after s": round(self.failing_s, 1),
            "lookups lost": len(self.lost),
            "blank answers": len(self.blanks),
            "moves asked for": self.moves,
            "slowest lookup s": round(self.slowest_s, 1) if self.slowest_s else "< 1",
            "registrations": self.registered,
            "registrations failed": dict(self.not_registered),
        }


class Stretch:
    """Begins now; `end` gives what has happened since."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.began = time.monotonic()
        self._lookups = Counter(record.lookups)
        self._moves = record.moves

    def end(self) -> Window:
        record, began = self._record, self.began
        heard = [how for at, _, how in record.registrations if at >= began]
        return Window(
            lookups={kind: count - self._lookups[kind] for kind, count in record.lookups.items()},
            failures=[one for one in list(record.failures) if one.at >= began],
            lost=[one for one in list(record.lost) if one.at >= began],
            blanks=[one for one in list(record.blanks) if one.at >= began],
            moves=record.moves - self._moves,
            slowest_s=max((seconds for at, seconds in list(record.slowest) if at >= began), default=0.0),
            registered=heard.count("ok"),
            not_registered=Counter(how for how in heard if how != "ok"),
            began=began,
            seconds=time.monotonic() - began,
        )
