"""unregister_brokers, scan_deadlines, expire_brokers, hold_expiry, release_expiry: removing brokers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from routebook.model.broker import MinBrokerChange, after_leaving
from routebook.model.names import Caller
from routebook.store.namespace import Namespace, Outcome, Status, status_of, text
from routebook.store.packing import compact_json, pack_caller, unpack_seats

Cause = Literal["unregistered", "connection-lost", "operator"]


NAMES_BYTES: Final = 200_000
"""Of brokers whose expiry is held, in one entry of the history."""

DEPARTURES_PER_CALL: Final = 100
"""The script stops there too; it is there that the store is blocked."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Without an address, whoever sits in the seat; without an incarnation, the current one."""

    cluster: str
    broker: str
    broker_id: int
    address: str = ""
    incarnation: str = ""
    cause: Cause = "unregistered"
    lost_ms: int | None = None
    """When the connection went, if that is the cause."""
    carried: bool = False
    """Workers still show what the store has lost, so the history must say that it is gone."""


@dataclass(frozen=True, slots=True)
class DeparturesReply:
    version: int
    statuses: tuple[Status, ...]
    notices: tuple[MinBrokerChange, ...]


async def unregister_brokers(namespace: Namespace, departures: Sequence[tuple[Departure, Caller]]) -> DeparturesReply:
    """Each with who wants it. In as many calls as the store needs not to be blocked."""
    version, statuses, notices = 0, list[Status](), list[MinBrokerChange]()
    while len(statuses) < len(departures):
        arguments: list[str | int] = []
        for departure, caller in departures[len(statuses) :][:DEPARTURES_PER_CALL]:
            arguments += _departure_arguments(departure, caller)
        reply = await namespace.run("unregister_brokers", *arguments)
        version = int(reply[1])
        statuses += [Status(status) for status in reply[2]]
        notices += _departure_notices(reply[3])
    return DeparturesReply(version, tuple(statuses), tuple(notices))


def _departure_arguments(departure: Departure, caller: Caller) -> list[str | int]:
    return [
        pack_caller(caller),
        departure.cause,
        "" if departure.lost_ms is None else departure.lost_ms,
        int(departure.carried),
        departure.cluster,
        departure.broker,
        departure.broker_id,
        departure.address,
        departure.incarnation,
    ]


def _departure_notices(told: list[list[bytes]]) -> list[MinBrokerChange]:
    return [after_leaving(text(broker), unpack_seats(seats), text(offline)) for broker, offline, *seats in told]


@dataclass(frozen=True, slots=True)
class DueInstance:
    instance_name: str
    incarnation: str
    deadline: int
    holds_seat: bool = True
    """Nothing depends on one that does not: its address was replaced."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What the leader's look found. `clock` is the deadline clock, which stops while nobody can be heard."""

    status: Status
    clock: int = 0
    instances: int = 0
    due: int = 0
    counting: int = 0
    """Of those due: not released by an operator, and holding a seat. What a mass expiry is judged by."""
    released_to: int = 0
    held_since_ms: int | None = None
    expired_lately: int = 0
    cut_off: bool = False
    """Most workers vanished, and nobody was heard since: the deadline clock stands still."""
    listed: tuple[DueInstance, ...] = ()
    """The first of those due, soonest deadline first."""


async def scan_deadlines(namespace: Namespace, lease: str, *, caller: Caller, limit: int, window_ms: int) -> Scan:
    """Expiries of the last `window_ms` are counted too: brokers that fall silent together fall due one by one."""
    reply = await namespace.run("scan_deadlines", pack_caller(caller), lease, limit, window_ms)
    if status_of(reply) is Status.FENCED:
        return Scan(Status.FENCED)
    listed = reply[10:]
    return Scan(
        status=Status.DONE,
        clock=int(reply[2]),
        instances=int(reply[3]),
        due=int(reply[4]),
        counting=int(reply[5]),
        released_to=int(reply[6]),
        held_since_ms=int(reply[7]) if reply[7] else None,
        expired_lately=int(reply[8]),
        cut_off=bool(reply[9]),
        listed=tuple(
            DueInstance(text(listed[i]), text(listed[i + 1]), int(float(listed[i + 2])), bool(listed[i + 3]))
            for i in range(0, len(listed), 4)
        ),
    )


@dataclass(frozen=True, slots=True)
class ExpiryReply:
    status: Status
    version: int
    looked_at: int
    removed: tuple[str, ...] = ()
    notices: tuple[MinBrokerChange, ...] = ()


async def expire_brokers(
    namespace: Namespace, lease: str, due_instances: Sequence[DueInstance], *, caller: Caller
) -> ExpiryReply:
    """Stops early after many members or queue entries: call again with the members after `looked_at`."""
    arguments = [part for due in due_instances for part in (due.instance_name, due.incarnation)]
    reply = await namespace.run("expire_brokers", pack_caller(caller), lease, *arguments)
    return ExpiryReply(
        status=status_of(reply),
        version=int(reply[1]),
        looked_at=int(reply[2]),
        removed=tuple(text(instance_name) for instance_name in reply[4:]),
        notices=tuple(_departure_notices(reply[3])),
    )


async def hold_expiry(namespace: Namespace, lease: str, brokers: Sequence[str], *, caller: Caller) -> Outcome:
    """Of very long names the history names as many as one entry holds."""
    return Outcome.of(await namespace.run("hold_expiry", pack_caller(caller), lease, compact_json(_first_of(brokers))))


def _first_of(names: Sequence[str]) -> list[str]:
    sizes = accumulate(len(compact_json(name).encode()) + 1 for name in names)
    return [name for name, size in zip(names, sizes, strict=True) if size <= NAMES_BYTES]


async def release_expiry(namespace: Namespace, *, caller: Caller, expire_due: bool, lease: str = "") -> Outcome:
    """`expire_due`: those due by now may expire, however many. Without it the hold merely ends: the leader says so, and
    names its lease.
    """
    return Outcome.of(await namespace.run("release_expiry", pack_caller(caller), int(expire_due), lease))
