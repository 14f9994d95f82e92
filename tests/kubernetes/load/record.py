"""Records the outcome of every lookup and registration, and summarises it for a period of time."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final, Literal

Kind = Literal["go_away", "legacy"]
"""Clients that follow GO_AWAY, and older ones that do not know it."""
KINDS: Final[tuple[Kind, ...]] = ("go_away", "legacy")
PATIENCE_S: Final = 30.0
"""How long a lookup is retried before it counts as lost."""
LAST_TRY_S: Final = 10.0
"""Upper bound for the last try of a lost lookup: at most three seconds each to connect and to wait for the answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The intended load. A scenario with much less of it proves nothing."""

    clients_of_each_kind: int
    lookups_per_second: float
    """For each client."""
    brokers: int
    register_period_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try of a lookup. All times are monotonic."""

    at: float
    client: str
    kind: Kind
    reason: str
    attempt: int
    """1 for the first try of a lookup."""
    lookup_started_at: float


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """An answer that a healthy fleet must never get: no such topic, a route without its broker, or no route at all."""

    at: float
    client: str
    detail: str


@dataclass(frozen=True, slots=True)
class Registration:
    started_at: float
    ended_at: float
    broker: str
    outcome: str
    """`ok`, or the reason of the failure."""

    @property
    def succeeded(self) -> bool:
        return self.outcome == "ok"


@dataclass
class Record:
    """Entries are only appended, so another thread always reads complete ones."""

    answered: Counter[Kind] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    in_flight: dict[str, float] = field(default_factory=dict)
    """By client: when its current lookup started, including retries."""
    failures: list[Failure] = field(default_factory=list)
    lost: list[Failure] = field(default_factory=list)
    """Last tries of lookups that were given up."""
    wrong_answers: list[WrongAnswer] = field(default_factory=list)
    moves: int = 0
    slowest: list[tuple[float, float]] = field(default_factory=list)
    """(time, duration) of lookups that took more than a second, retries included."""
    registrations: list[Registration] = field(default_factory=list)
    writes: list[Registration] = field(default_factory=list)
    """Registrations of the broker that writes ten times per second, if the fleet has it."""


@dataclass(frozen=True, slots=True)
class WriteOutage:
    """How long writes failed, for a broker that writes ten times per second. Times count from the window's start."""

    failed: int
    last_failure_s: float
    resumed_s: float
    """When the first write after the last failure succeeded; infinite if none did."""
    longest_gap_s: float
    """The longest time between two successful writes, or from the window's start to the first one."""

    def describe(self) -> dict[str, object]:
        return {
            "writes failed": self.failed,
            "last write failed after s": self.last_failure_s,
            "writes resumed after s": self.resumed_s,
            "longest time without a write, s": self.longest_gap_s,
        }


@dataclass(frozen=True)
class Window:
    """What happened during a period of time: everything that started in it, or was in flight at its start."""

    plan: Plan
    answered: dict[Kind, int]
    failures: list[Failure]
    lost: list[Failure]
    wrong_answers: list[WrongAnswer]
    moves: int
    slowest_s: float
    registrations: list[Registration]
    writes: list[Registration]
    start: float
    seconds: float

    def planned_lookups_of_each_kind(self) -> float:
        return self.plan.clients_of_each_kind * self.plan.lookups_per_second * self.seconds

    def planned_registrations(self) -> float:
        return self.plan.brokers * self.seconds / self.plan.register_period_s

    @property
    def registered(self) -> int:
        return sum(1 for registration in self.registrations if registration.succeeded)

    @property
    def failed_registrations(self) -> Counter[str]:
        return Counter(registration.outcome for registration in self.registrations if not registration.succeeded)

    def failed_first_tries(self, *kinds: Kind) -> int:
        return sum(1 for failure in self.failures if failure.kind in kinds and failure.attempt == 1)

    @property
    def most_failed_tries(self) -> int:
        return max((failure.attempt for failure in self.failures), default=0)

    @property
    def last_failure_s(self) -> float:
        """When the last try failed, from the window's start."""
        return max((failure.at - self.start for failure in self.failures), default=0.0)

    def write_outage(self) -> WriteOutage:
        succeeded = sorted(write.ended_at for write in self.writes if write.succeeded)
        failed = [write.ended_at for write in self.writes if not write.succeeded]
        last = max(failed, default=self.start)
        return WriteOutage(
            failed=len(failed),
            last_failure_s=last - self.start,
            resumed_s=next((at - self.start for at in succeeded if at >= last), inf),
            longest_gap_s=max((later - earlier for earlier, later in pairwise([self.start, *succeeded])), default=inf),
        )

    def describe(self) -> dict[str, object]:
        return {
            "seconds": round(self.seconds, 1),
            "lookups": sum(self.answered.values()),
            "moves followed": self.moves,
            "first tries failed, GO_AWAY clients": self.failed_first_tries("go_away"),
            "first tries failed, legacy clients": self.failed_first_tries("legacy"),
            "most tries of one lookup": self.most_failed_tries + 1,
            "reasons": dict(Counter(failure.reason for failure in self.failures)),
            "last failed try after s": round(self.last_failure_s, 1),
            "lookups lost": len(self.lost),
            "wrong answers": len(self.wrong_answers),
            "slowest lookup s": round(self.slowest_s, 1) if self.slowest_s else "< 1",
            "registrations": self.registered,
            "registrations failed": dict(self.failed_registrations),
        }


class OpenWindow:
    """Starts at once; `close` returns what has happened since."""

    def __init__(self, record: Record, plan: Plan) -> None:
        self._record = record
        self._plan = plan
        self.start = time.monotonic()
        self._answered = Counter(record.answered)
        self._moves = record.moves

    def close(self) -> Window:
        """Waits until every lookup that started in the window is answered or lost."""
        record, start, end = self._record, self.start, time.monotonic()
        answered = {kind: count - self._answered[kind] for kind, count in dict(record.answered).items()}
        moves = record.moves - self._moves
        self._wait_for_lookups_started_before(end)
        return Window(
            plan=self._plan,
            answered=answered,
            failures=_lookups_between(start, end, record.failures),
            lost=_lookups_between(start, end, record.lost),
            wrong_answers=[answer for answer in list(record.wrong_answers) if answer.at >= start],
            moves=moves,
            slowest_s=max((seconds for at, seconds in list(record.slowest) if at >= start), default=0.0),
            registrations=_registrations_between(start, end, record.registrations),
            writes=_registrations_between(start, end, record.writes),
            start=start,
            seconds=end - start,
        )

    def _wait_for_lookups_started_before(self, instant: float) -> None:
        deadline = instant + PATIENCE_S + LAST_TRY_S
        while waiting := [client for client, start in dict(self._record.in_flight).items() if start <= instant]:
            assert time.monotonic() < deadline, f"{waiting}: neither answered nor lost after {PATIENCE_S} s"
            time.sleep(0.01)


def _lookups_between(start: float, end: float, failures: Iterable[Failure]) -> list[Failure]:
    return [it for it in list(failures) if it.at >= start and it.lookup_started_at <= end]


def _registrations_between(start: float, end: float, registrations: Iterable[Registration]) -> list[Registration]:
    return [registration for registration in list(registrations) if start <= registration.ended_at <= end]
