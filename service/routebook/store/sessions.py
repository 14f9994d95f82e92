"""Sessions: open_sessions, close_sessions, count_sessions, resolve_lost_connections, adopt_lost_connections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from routebook.model.names import Caller, split_instance_name
from routebook.store.namespace import CountedOutcome, Namespace, Status, status_of, text
from routebook.store.packing import pack_caller
from routebook.store.removal import Departure


@dataclass(frozen=True, slots=True)
class SessionMark:
    """What a registration or touch opens a session with: the worker, and its own count of openings."""

    worker: str
    stamp: int


NO_SESSION: Final = SessionMark("", 0)


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """An instance that a connection of the worker carries."""

    instance_name: str
    incarnation: str
    stamp: int


@dataclass(frozen=True, slots=True)
class EndedSession:
    """No connection of the worker carries it any more. Without an incarnation: whatever the session stood for."""

    instance_name: str
    incarnation: str
    stamp: int
    ago_ms: int


@dataclass(frozen=True, slots=True)
class LostConnection:
    """An instance whose last session, of any worker, has ended."""

    instance_name: str
    broker: str
    broker_id: int
    incarnation: str
    lost_ms: int

    @property
    def cluster(self) -> str:
        return split_instance_name(self.instance_name)[0]

    @property
    def address(self) -> str:
        return split_instance_name(self.instance_name)[1]

    def departure(self) -> Departure:
        """Its removal, of exactly this incarnation."""
        return Departure(
            self.cluster,
            self.broker,
            self.broker_id,
            self.address,
            self.incarnation,
            cause="connection-lost",
            lost_ms=self.lost_ms,
        )


@dataclass(frozen=True, slots=True)
class SessionCounts:
    ended: int
    """Since the instant asked about."""
    open: int
    lost: int
    """Instances without a session that somebody is looking into."""
    cut_off: bool
    """It is us, not the brokers, who are gone: see `Scan.cut_off`."""


async def open_sessions(
    namespace: Namespace, worker: str, sessions: Sequence[OpenedSession], *, caller: Caller
) -> tuple[Status, ...]:
    """Of each DONE, or STALE when that stay is over."""
    arguments: list[str | int] = [pack_caller(caller), worker]
    for one in sessions:
        arguments += [*split_instance_name(one.instance_name), one.incarnation, one.stamp]
    reply = await namespace.run("open_sessions", *arguments)
    return tuple(Status(status) for status in reply[2])


async def close_sessions(
    namespace: Namespace, worker: str, sessions: Sequence[EndedSession]
) -> tuple[tuple[Status, LostConnection | None], ...]:
    """Of each DONE with the loss, UNCHANGED when it is connected elsewhere, STALE when its stay is over. Maybe of the
    first ones only: call again with the others.
    """
    arguments: list[str | int] = [worker]
    for one in sessions:
        arguments += [*split_instance_name(one.instance_name), one.incarnation, one.stamp, one.ago_ms]
    told = (await namespace.run("close_sessions", *arguments))[2:]
    looked_at = len(told) // 5
    return tuple(
        (
            Status(told[5 * i]),
            _loss([one.instance_name, *told[5 * i + 1 : 5 * i + 5]]) if told[5 * i] == Status.DONE else None,
        )
        for i, one in enumerate(sessions[:looked_at])
    )


async def resolve_lost_connections(namespace: Namespace, losses: Sequence[LostConnection]) -> int:
    """Nobody looks into them any more; their deadlines decide."""
    arguments: list[str] = []
    for loss in losses:
        arguments += [loss.cluster, loss.address, loss.incarnation]
    return CountedOutcome.of(await namespace.run("resolve_lost_connections", *arguments)).count


async def adopt_lost_connections(
    namespace: Namespace, lease: str, worker: str, *, caller: Caller
) -> tuple[Status, tuple[LostConnection, ...]]:
    """Those that a dead worker was looking into: from now on this one does, the leader."""
    reply = await namespace.run("adopt_lost_connections", pack_caller(caller), lease, worker)
    return status_of(reply), tuple(_losses(reply[2:]))


async def count_sessions(namespace: Namespace, since_ms: int) -> SessionCounts:
    reply = await namespace.run("count_sessions", since_ms)
    return SessionCounts(ended=int(reply[2]), open=int(reply[3]), lost=int(reply[4]), cut_off=bool(reply[5]))


def _losses(told: list[Any]) -> Iterator[LostConnection]:
    for i in range(0, len(told), 5):
        yield _loss([text(told[i]), *told[i + 1 : i + 5]])


def _loss(told: list[Any]) -> LostConnection:
    instance_name, broker, broker_id, incarnation, lost_ms = told
    return LostConnection(instance_name, text(broker), int(broker_id), text(incarnation), int(lost_ms))
