"""Sessions: open_sessions, close_sessions, count_sessions, resolve_lost_connections, adopt_lost_connections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from routebook.model.names import Caller, split_instance_name
from routebook.store.namespace import CountedOutcome, Namespace, Status, pack_caller, status_of, text
from routebook.store.removal import Removal


@dataclass(frozen=True, slots=True)
class SessionMark:
    """The session that a registration or touch opens. `stamp` is the worker's count of the sessions that it opened."""

    worker: str
    stamp: int


NO_SESSION: Final = SessionMark("", 0)


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """An instance that the worker has a connection of."""

    instance_name: str
    incarnation: str
    stamp: int


@dataclass(frozen=True, slots=True)
class EndedSession:
    """The worker has no connection of this instance any more. Without an incarnation, the session's own is used."""

    instance_name: str
    incarnation: str
    stamp: int
    ago_ms: int


@dataclass(frozen=True, slots=True)
class LostConnection:
    """An instance whose last session on any worker has ended."""

    instance_name: str
    broker: str
    broker_id: int
    incarnation: str
    lost_ms: int
    source: str = ""
    """The address that the connection came from, if it is known."""
    established: bool = True
    """Whether the instance has sent heartbeats for a while (`lua/include/established.lua`)."""

    @property
    def cluster(self) -> str:
        return split_instance_name(self.instance_name)[0]

    @property
    def address(self) -> str:
        return split_instance_name(self.instance_name)[1]

    def removal(self) -> Removal:
        """The removal of exactly this incarnation."""
        return Removal(
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
    """Sessions that ended since the requested time."""
    open: int
    lost: int
    """Instances without a session whose verdict is pending."""
    cut_off: bool
    """The workers are cut off from the brokers: see `Scan.cut_off`."""
    established: int
    """Instances that have sent heartbeats for a while, with or without a session."""


async def open_sessions(
    namespace: Namespace, worker: str, sessions: Sequence[OpenedSession], *, caller: Caller
) -> tuple[Status, ...]:
    """For each session DONE, or STALE if that incarnation is over."""
    arguments: list[str | int] = [pack_caller(caller), worker]
    for one in sessions:
        arguments += [*split_instance_name(one.instance_name), one.incarnation, one.stamp]
    reply = await namespace.run("open_sessions", *arguments)
    return tuple(Status(status) for status in reply[2])


SESSIONS_PER_READ: Final = 1000


async def read_sessions(namespace: Namespace, worker: str) -> list[OpenedSession]:
    """The sessions of this worker in the store. Those opened or closed meanwhile may be missing or repeated."""
    key, cursor, found = namespace.keys.of("sessions", worker), b"0", list[OpenedSession]()
    while True:
        cursor, flat = await namespace.client.call("HSCAN", key, cursor, "COUNT", SESSIONS_PER_READ)
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            stamp, _, incarnation = text(value).partition(" ")
            found.append(OpenedSession(text(name), incarnation, int(stamp)))
        if cursor == b"0":
            return found


async def close_sessions(
    namespace: Namespace, worker: str, sessions: Sequence[EndedSession]
) -> tuple[tuple[Status, LostConnection | None], ...]:
    """For each session DONE and the lost connection, UNCHANGED if another worker has a session, or STALE if the
    incarnation is over. The result may cover only the first ones: call again with the others.
    """
    arguments: list[str | int] = [worker]
    for one in sessions:
        arguments += [*split_instance_name(one.instance_name), one.incarnation, one.stamp, one.ago_ms]
    values = (await namespace.run("close_sessions", *arguments))[2:]
    results: list[tuple[Status, LostConnection | None]] = []
    for session, (status, *where) in zip(sessions, _in_sevens(values), strict=False):
        lost = _lost_connection(session.instance_name, where) if status == Status.DONE else None
        results.append((Status(status), lost))
    return tuple(results)


async def resolve_lost_connections(namespace: Namespace, lost: Sequence[LostConnection]) -> int:
    """Ends their investigation: the deadlines decide. Returns how many were pending."""
    arguments: list[str | int] = []
    for connection in lost:
        arguments += [connection.cluster, connection.address, connection.incarnation, connection.lost_ms]
    return CountedOutcome.of(await namespace.run("resolve_lost_connections", *arguments)).count


async def adopt_lost_connections(
    namespace: Namespace, lease: str, worker: str, *, caller: Caller
) -> tuple[Status, tuple[LostConnection, ...]]:
    """Makes this worker, the leader, investigate the lost connections of dead workers."""
    reply = await namespace.run("adopt_lost_connections", pack_caller(caller), lease, worker)
    adopted = (_lost_connection(text(name), values) for name, *values in _in_sevens(reply[2:]))
    return status_of(reply), tuple(adopted)


async def count_sessions(namespace: Namespace, since_ms: int) -> SessionCounts:
    reply = await namespace.run("count_sessions", since_ms)
    return SessionCounts(
        ended=int(reply[2]),
        open=int(reply[3]),
        lost=int(reply[4]),
        cut_off=bool(reply[5]),
        established=int(reply[6]),
    )


def _in_sevens(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Both scripts reply seven values per instance."""
    return (values[at : at + 7] for at in range(0, len(values), 7))


def _lost_connection(instance_name: str, values: Sequence[Any]) -> LostConnection:
    broker, broker_id, incarnation, lost_ms, source, established = values
    return LostConnection(
        instance_name,
        text(broker),
        int(broker_id),
        text(incarnation),
        int(lost_ms),
        source=text(source),
        established=bool(established),
    )
