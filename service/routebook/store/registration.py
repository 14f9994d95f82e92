"""register_broker, touch_broker, heartbeat_broker: how a broker enters the route table and remains in it."""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from routebook.errors import EpochEndedError
from routebook.model.broker import DataVersion, Instance, QueueData, Registration, TopicMapping
from routebook.model.names import Caller
from routebook.store.namespace import (
    Namespace,
    QueueChange,
    Status,
    pack_caller,
    pack_filters,
    pack_mapping,
    pack_queues,
    queue_chunks,
    status_of,
    text,
    unpack_seats,
)
from routebook.store.sessions import NO_SESSION, SessionMark
from routebook.store.staging import NOT_STAGED, RunSteps, stage_changes

STAGE_FROM_TOPICS: Final = 6000
"""A difference of this many topics is staged in parts and put in place in one step, to block the store only shortly."""


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """What a registration changes in the queues of its group, compared with a known revision of the group."""

    new: Mapping[str, QueueData] = field(default_factory=dict)
    differing: Mapping[str, QueueData] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    unchanged: int | None = None
    """Number of the group's topics that it leaves as they are; None if unknown."""
    known: Mapping[str, QueueData] = field(default_factory=dict)
    """The queues that the group had, for the history. If they change meanwhile, the script changes nothing."""

    @property
    def changes(self) -> list[QueueChange]:
        return [("n", self.new), ("d", self.differing), ("x", dict.fromkeys(self.dropped))]


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Limits that one script checks for all workers together; 0 means no limit."""

    clusters: int = 0
    groups: int = 0
    brokers: int = 0
    seats_per_group: int = 0
    topics_per_broker: int = 0

    def pack(self) -> str:
        return f"{self.clusters} {self.groups} {self.brokers} {self.seats_per_group} {self.topics_per_broker}"


@dataclass(frozen=True, slots=True)
class SeatReply:
    """The reply of register_broker and touch_broker."""

    status: Status
    version: int
    incarnation: str
    master_address: str
    master_ha_address: str
    gap_ms: int | None = None
    """Time since the heartbeat before; None if there was none."""
    lowered_seats: Mapping[int, str] = field(default_factory=dict)
    """The group's seats afterwards if this registration lowered its smallest id; else empty."""
    exceeded: str = ""
    """LIMITED: the setting of the limit."""

    @classmethod
    def of(cls, reply: list[Any]) -> "SeatReply":
        if status_of(reply) is Status.LIMITED:
            return cls(Status.LIMITED, int(reply[1]), "", "", "", exceeded=text(reply[2]))
        return cls(
            status_of(reply),
            int(reply[1]),
            text(reply[2]),
            text(reply[3]),
            text(reply[4]),
            _gap(reply[5]),
            unpack_seats(reply[6]) if len(reply) > 6 else {},
        )


def _gap(ms: int) -> int | None:
    return ms if ms >= 0 else None


def new_incarnation() -> str:
    """64 random bits that distinguish one stay of an address in its seat from the next."""
    return secrets.token_hex(8)


async def register_broker(
    namespace: Namespace,
    registration: Registration,
    difference: QueueDifference,
    *,
    caller: Caller,
    timeout_ms: int,
    digest: str,
    base: tuple[str, int],
    replaces_known: bool,
    run_steps: RunSteps,
    epoch: int | None = None,
    session: SessionMark = NO_SESSION,
    limits: TableLimits = TableLimits(),
) -> SeatReply:
    """`base` is the history, and the revision of the group, that the difference was compared with, and `epoch` that of
    the connections on which the table was verified. STALE: one of them has changed.

    `replaces_known` says whether the data version is expected to count as changed. It matters only for a staged table,
    which either contains the differing topics or does not.
    """
    staged = NOT_STAGED
    if sum(len(queues) for _, queues in difference.changes) >= STAGE_FROM_TOPICS:
        changes = [(kind, queues) for kind, queues in difference.changes if kind != "d" or replaces_known]
        is_whole = difference.unchanged == 0 and (replaces_known or not difference.differing)
        table = await stage_changes(
            namespace, registration.broker, changes, difference.known, is_whole=is_whole, run_steps=run_steps
        )
        if table is None:
            return SeatReply(Status.STALE, 0, "", "", "")
        staged = table
    is_staged = staged is not NOT_STAGED
    acting = registration.acting_master
    version = registration.data_version
    table_size = len(registration.table_keys if registration.table_keys is not None else registration.topics)
    arguments: list[str | int] = [
        pack_caller(caller),
        registration.cluster,
        registration.broker,
        registration.broker_id,
        registration.address,
        registration.ha_address,
        registration.zone or "",
        "" if acting is None else int(acting),
        timeout_ms,
        version.pack() if version else "",
        new_incarnation(),
        digest,
        pack_filters(registration.filters),
        f"{base[0]}:{base[1]}",
        int(table_size == 1 and not registration.full),
        staged.name,
        staged.entries,
        staged.chunks,
        int(replaces_known) if is_staged and difference.differing else "",
        session.worker,
        session.stamp,
        limits.pack(),
        *_difference_arguments(difference, is_staged=is_staged),
    ]
    try:
        return SeatReply.of(await namespace.run("register_broker", *arguments, epoch=epoch))
    except EpochEndedError:
        return SeatReply(Status.STALE, 0, "", "", "")


def _difference_arguments(difference: QueueDifference, *, is_staged: bool) -> list[str | int]:
    """Counts, then the lists. Staged topics and their queue items are in the store already."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for topic, mapping in difference.mappings.items():
        hosts[mapping.bname] += [topic, pack_mapping(mapping)]
    mappings: list[str | int] = []
    for host, words in hosts.items():
        mappings += [host, len(words) // 2, *words]
    if is_staged:
        return [0, 0, 0, len(hosts), *mappings]
    return [
        len(difference.new),
        len(difference.differing),
        len(difference.dropped),
        len(hosts),
        *pack_queues(difference.new),
        *pack_queues(difference.differing),
        *difference.dropped,
        *mappings,
        *(word for change in difference.changes for word in queue_chunks(change, difference.known)),
    ]


async def touch_broker(
    namespace: Namespace,
    sender: Registration | Instance,
    *,
    caller: Caller,
    digest: str,
    session: SessionMark = NO_SESSION,
) -> SeatReply:
    return SeatReply.of(
        await namespace.run(
            "touch_broker",
            pack_caller(caller),
            sender.cluster,
            sender.broker,
            sender.broker_id,
            sender.address,
            digest,
            session.worker,
            session.stamp,
        )
    )


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    status: Status
    version: int
    data_version: DataVersion | None
    gap_ms: int | None
    """Time since the heartbeat before; None if there was none."""


async def heartbeat_broker(
    namespace: Namespace,
    cluster: str,
    broker: str,
    broker_id: int,
    *,
    caller: Caller,
    address: str = "",
    foreign: bool = False,
) -> HeartbeatReply:
    """Without an address, the one in that seat is used. `foreign`: it came over a connection that did not register the
    instance. REFUSED if the instance has a session of another host.
    """
    reply = await namespace.run(
        "heartbeat_broker", pack_caller(caller), cluster, broker, broker_id, address, int(foreign)
    )
    return HeartbeatReply(status_of(reply), int(reply[1]), DataVersion.unpack(text(reply[2])), _gap(reply[3]))
