"""What happened in one run of the laboratory: every request with its answer, and what was done to the service.

The state that a recording describes is a map from broker to incarnation. A client sees two parts of an
incarnation: the address, and the *generation*. The broker raises this number with each change, and registers it as the
number of queues of all its topics. So an answer shows which registration of each broker it contains.

All times are seconds on the monotonic clock of the recording process, unless a name ends in `_ms`: these are the
store's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import msgspec

from routebook.protocol.frame import ResponseCode

NO_SUCH_TOPIC: Final = 17
NOT_FOUND: Final = 404

Kind = Literal["lookup", "registration", "heartbeat", "unregistration"]
Port = Literal["remoting", "http"]


class Incarnation(NamedTuple):
    address: str
    generation: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer. `answered` and `code` are None if there was no answer."""

    kind: Kind
    port: Port
    worker: str
    connection: int
    subject: str
    """The topic of a lookup, or the broker of other requests."""
    sent: float
    answered: float | None = None
    code: int | None = None
    """The response code of the remoting port, or the HTTP status."""
    attempt: int = 1
    brokers: Mapping[str, Incarnation] = field(default_factory=dict)
    """Those in the answer to a lookup."""
    incarnation: Incarnation | None = None
    """The incarnation that a registration sent."""
    topics: tuple[str, ...] = ()
    version: int | None = None
    history: str | None = None
    stale: bool = False

    @property
    def done(self) -> bool:
        return self.code in (ResponseCode.SUCCESS, 200)

    @property
    def absent(self) -> bool:
        """The answer says that there is no such topic."""
        return self.code in (NO_SUCH_TOPIC, NOT_FOUND)

    @property
    def ended(self) -> float:
        """When the answer was there; without an answer, never."""
        return float("inf") if self.answered is None else self.answered

    @property
    def took_s(self) -> float:
        return self.ended - self.sent


@dataclass(frozen=True, slots=True)
class Status:
    """What a worker reported of itself."""

    worker: str
    sent: float
    answered: float
    version: int
    history: str
    digest: str
    recovering: bool = False
    stale_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader's lease, as it was in the store at this moment of the store's clock."""

    ms: int
    token: int
    worker: str


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry of the history: this seat was emptied."""

    ms: int
    version: int
    history: str
    actor: str
    broker: str
    address: str
    cause: str


@dataclass(frozen=True, slots=True)
class Death:
    """The broker was killed, or fell silent. No answer may contain it `bound_s` later, unless it registered again."""

    broker: str
    at: float
    bound_s: float


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that one process used before a fault, or some time after it."""

    process: str
    when: Literal["before", "after"]
    memory_bytes: int
    open_files: int
    waiting: int = 0
    """Requests in its queues."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """In this time the worker was suspended, or could not reach the store that the others use, so it may show an older
    state.
    """

    worker: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A mark in the recording; nothing is derived from it but texts."""

    what: str
    at: float


@dataclass
class Recording:
    broker_timeout_s: float
    """How long after a heartbeat a broker counts as one that sends heartbeats."""
    seed: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    resources: list[Resources] = field(default_factory=list)
    cut_off: list[CutOff] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    last_change: float | None = None
    """When the last change was acknowledged, if nothing was changed from then to the end."""
    workers_at_end: list[str] = field(default_factory=list)
    """Workers that ran, with contact to the store, when the recording ended."""
    planned: dict[str, int] = field(default_factory=dict)
    """Number of requests that were to be sent, by kind."""
    gaps_counted: int = 0
    """Losses of acknowledged changes that the workers' metrics count."""

    @property
    def lookups(self) -> list[Exchange]:
        return [one for one in self.exchanges if one.kind == "lookup"]

    def of_kind(self, *kinds: Kind) -> list[Exchange]:
        return [one for one in self.exchanges if one.kind in kinds]

    @property
    def brokers(self) -> list[str]:
        return sorted({one.subject for one in self.exchanges if one.kind == "registration"})

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        return msgspec.json.decode(path.read_bytes(), type=cls)


class Span(NamedTuple):
    begin: float
    end: float

    def covers(self, begin: float, end: float) -> bool:
        return self.begin <= begin and end <= self.end


def lifetimes(recording: Recording, broker: str) -> list[Span]:
    """The times in which this broker sent heartbeats. Such a time begins when a first registration is acknowledged and
    ends when the broker dies or unregisters, or one timeout after it sent its last heartbeat.
    """
    spans: list[Span] = []
    begin: float | None = None
    last = 0.0
    for at, event in sorted(_events(recording, broker), key=lambda one: one[0]):
        if begin is not None and at > last + recording.broker_timeout_s:
            spans.append(Span(begin, last + recording.broker_timeout_s))
            begin = None
        if event == "sent":
            last = at
        elif event == "acknowledged" and begin is None:
            begin, last = at, max(last, at)
        elif event == "ended" and begin is not None:
            spans.append(Span(begin, at))
            begin = None
    if begin is not None:
        spans.append(Span(begin, last + recording.broker_timeout_s))
    return spans


def _events(recording: Recording, broker: str) -> Iterable[tuple[float, str]]:
    for death in recording.deaths:
        if death.broker == broker:
            yield death.at, "ended"
    for one in recording.exchanges:
        if one.subject != broker or one.kind == "lookup":
            continue
        if one.kind == "unregistration":
            yield one.sent, "ended"
            continue
        yield one.sent, "sent"
        if one.kind == "registration" and one.done and one.answered is not None:
            yield one.answered, "acknowledged"
