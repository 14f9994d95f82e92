"""unregister_brokers, scan_deadlines, expire_brokers, hold_expiry, release_expiry: removing brokers, and the brake."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from routebook.model.broker import MinBrokerChange, min_broker_left
from routebook.model.names import Caller
from routebook.settings.fields import Settings
from routebook.store.namespace import (
    Namespace,
    Outcome,
    Status,
    compact_json,
    pack_caller,
    status_of,
    text,
    unpack_seats,
)
from routebook.store.staging import AT_ONCE, STAGING_ATTEMPTS, stage_permissions

Cause = Literal["unregistered", "connection-lost", "operator"]


NAMES_BYTES: Final = 200_000
"""Size of the broker names in an entry about a hold, so that the entry stays below 256 KiB."""

REMOVALS_PER_CALL: Final = 100
"""The script has the same limit, because it blocks the store."""


@dataclass(frozen=True, slots=True)
class Brake:
    """When removals are held: `lua/include/brake.lua` decides."""

    percent: int
    minimum: int
    window_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "Brake":
        return cls(settings.hold_percent, settings.hold_minimum, settings.hold_window_ms)


UNLESS_CONNECTED: Final = "-"
"""In place of an incarnation: the current one, unless it has a session."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal of one instance. Without an address, the one in the seat is removed; without an incarnation, the
    current one.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str = ""
    incarnation: str = ""
    cause: Cause = "unregistered"
    lost_ms: int | None = None
    """When the connection was lost, if that is the cause."""
    carried: bool = False
    """Workers still show what the store has lost, so the history needs an entry even if it is not in the store."""


@dataclass(frozen=True, slots=True)
class RemovalsReply:
    version: int
    statuses: tuple[Status, ...]
    notices: tuple[MinBrokerChange, ...]
    hold_began: bool = False


async def unregister_brokers(
    namespace: Namespace, removals: Sequence[tuple[Removal, Caller]], brake: Brake
) -> RemovalsReply:
    """Several calls if there are many, so that none blocks the store for long. Each removal comes with its caller."""
    version, statuses, notices, hold_began = 0, list[Status](), list[MinBrokerChange](), False
    staging = _Staging(namespace)
    while len(statuses) < len(removals):
        batch = removals[len(statuses) :][:REMOVALS_PER_CALL]
        arguments: list[str | int] = []
        for at, (removal, caller) in enumerate(batch):
            arguments += _removal_arguments(removal, caller, staging.staged if at == 0 else "")
        reply = await namespace.run("unregister_brokers", brake.percent, brake.minimum, brake.window_ms, *arguments)
        version = int(reply[1])
        statuses += [Status(status) for status in reply[2]]
        notices += _removal_notices(reply[3])
        hold_began = hold_began or bool(reply[5])
        await staging.prepare(text(reply[4]), handled=len(reply[2]))
    return RemovalsReply(version, tuple(statuses), tuple(notices), hold_began)


class _Staging:
    """Stages the permissions of a large group whose removed broker leaves it without a master."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._attempts = 0
        self.staged = ""
        """The staged table for the first request of the next call."""

    async def prepare(self, broker: str, *, handled: int) -> None:
        """`broker`: the group that the script asked to stage, or empty."""
        self._attempts = 0 if handled else self._attempts + 1
        self.staged = AT_ONCE if self._attempts > STAGING_ATTEMPTS else ""
        if broker and not self.staged:
            self.staged = await stage_permissions(self._namespace, broker, "clear-write")


def _removal_arguments(removal: Removal, caller: Caller, staged: str) -> list[str | int]:
    return [
        pack_caller(caller),
        removal.cause,
        "" if removal.lost_ms is None else removal.lost_ms,
        int(removal.carried),
        removal.cluster,
        removal.broker,
        removal.broker_id,
        removal.address,
        removal.incarnation,
        staged,
    ]


def _removal_notices(notices: list[list[bytes]]) -> list[MinBrokerChange]:
    return [min_broker_left(text(broker), unpack_seats(seats), text(departed)) for broker, departed, *seats in notices]


@dataclass(frozen=True, slots=True)
class DueInstance:
    instance_name: str
    incarnation: str
    deadline: int
    counts: bool = True
    """For the brake. False: it is not established, or its address was replaced, so that nothing depends on it."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What the leader's scan found. `clock` is the deadline clock, which is paused while no heartbeat can arrive."""

    status: Status
    clock: int = 0
    instances: int = 0
    due: int = 0
    counting: int = 0
    """Number of instances that are due, or whose removal is held, that count for the brake and that no operator has
    released.
    """
    released_to: int = 0
    held_since_ms: int | None = None
    removed_recently: int = 0
    cut_off: bool = False
    """Most workers have vanished, and no heartbeat has arrived since: the deadline clock is paused."""
    has_to_hold: bool = False
    held: tuple[str, ...] = ()
    """Instances whose removal is held although they are not due: lost connections and unregistrations."""
    listed: tuple[DueInstance, ...] = ()
    """The first of those due, soonest deadline first."""


async def scan_deadlines(namespace: Namespace, lease: str, *, caller: Caller, limit: int, brake: Brake) -> Scan:
    reply = await namespace.run(
        "scan_deadlines", pack_caller(caller), lease, limit, brake.percent, brake.minimum, brake.window_ms
    )
    if status_of(reply) is Status.FENCED:
        return Scan(Status.FENCED)
    listed = reply[12:]
    return Scan(
        status=Status.DONE,
        clock=int(reply[2]),
        instances=int(reply[3]),
        due=int(reply[4]),
        counting=int(reply[5]),
        released_to=int(reply[6]),
        held_since_ms=int(reply[7]) if reply[7] else None,
        removed_recently=int(reply[8]),
        cut_off=bool(reply[9]),
        has_to_hold=bool(reply[10]),
        held=tuple(text(name) for name in reply[11]),
        listed=tuple(
            DueInstance(text(listed[i]), text(listed[i + 1]), int(float(listed[i + 2])), bool(listed[i + 3]))
            for i in range(0, len(listed), 4)
        ),
    )


@dataclass(frozen=True, slots=True)
class ExpiryReply:
    status: Status
    version: int
    handled: int
    """How many of the instances were checked."""
    removed: tuple[str, ...] = ()
    notices: tuple[MinBrokerChange, ...] = ()


async def expire_brokers(
    namespace: Namespace, lease: str, due_instances: Sequence[DueInstance], *, caller: Caller
) -> ExpiryReply:
    """Stops early after many instances or queue entries: call again with the instances after the first `handled`."""
    staging, handled, removed, notices = _Staging(namespace), 0, list[str](), list[MinBrokerChange]()
    while True:
        arguments: list[str] = []
        for at, due in enumerate(due_instances[handled:]):
            arguments += [due.instance_name, due.incarnation, staging.staged if at == 0 else ""]
        reply = await namespace.run("expire_brokers", pack_caller(caller), lease, *arguments)
        handled += int(reply[2])
        removed += [text(name) for name in reply[5:]]
        notices += _removal_notices(reply[3])
        if not reply[4]:
            status = status_of(reply)
            if status is Status.UNCHANGED and removed:
                status = Status.DONE
            return ExpiryReply(status, int(reply[1]), handled, tuple(removed), tuple(notices))
        await staging.prepare(text(reply[4]), handled=int(reply[2]))


async def hold_expiry(namespace: Namespace, lease: str, brokers: Sequence[str], *, caller: Caller) -> Outcome:
    """The history names as many brokers as fit into one entry."""
    return Outcome.of(await namespace.run("hold_expiry", pack_caller(caller), lease, compact_json(_that_fit(brokers))))


def _that_fit(names: Sequence[str]) -> list[str]:
    sizes = accumulate(len(compact_json(name).encode()) + 1 for name in names)
    return [name for name, size in zip(names, sizes, strict=True) if size <= NAMES_BYTES]


async def release_expiry(namespace: Namespace, *, caller: Caller, expire_due: bool, lease: str = "") -> Outcome:
    """`expire_due`: all brokers that are due now may expire, however many. Without it the hold only ends, which the
    leader does with its lease.
    """
    return Outcome.of(await namespace.run("release_expiry", pack_caller(caller), int(expire_due), lease))
