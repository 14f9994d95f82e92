"""Presence of instances: their heartbeats, deadlines and connections, for operators. Nothing here writes.

However many instances are read, there are two round trips: the second needs the names of the workers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from routebook.store.namespace import Namespace, text

NAMES_PER_COMMAND: Final = 500
"""One command about more names would block the store for longer."""

Health = Literal["ok", "late", "silent", "disconnected", "held"]


@dataclass(frozen=True, slots=True)
class Presence:
    """All times are on the store's clock, and None where the store has no record."""

    now_ms: int
    heartbeat_ms: int | None
    since_ms: int | None
    """When this incarnation began."""
    expires_in_ms: int | None
    """Until the instance may be removed, on the clock that stops while no worker can receive heartbeats."""
    timeout_ms: int | None
    source: str
    """Address that its connection came from; empty if it is unknown."""
    worker: str
    """A worker that has a connection of the instance; empty if none has."""
    is_lost: bool
    """Its connection was lost, and whether it is dead is being found out."""
    is_held: bool
    """It would have been removed, but removals are held."""

    @property
    def heartbeat_age_ms(self) -> int | None:
        return None if self.heartbeat_ms is None else max(self.now_ms - self.heartbeat_ms, 0)

    @property
    def health(self) -> Health:
        """`late`: more than half of the timeout has passed without a heartbeat."""
        if self.is_held:
            return "held"
        if self.expires_in_ms is None or self.expires_in_ms <= 0:
            return "silent"
        if self.is_lost:
            return "disconnected"
        is_late = self.timeout_ms is not None and self.expires_in_ms * 2 < self.timeout_ms
        return "late" if is_late else "ok"


async def read_presences(namespace: Namespace, incarnations: Mapping[str, str]) -> dict[str, Presence]:
    """`incarnations`: instance name -> its incarnation. A session of another incarnation is not this instance's."""
    if not incarnations:
        return {}
    names, keys = list(incarnations), namespace.keys
    parts = [names[at : at + NAMES_PER_COMMAND] for at in range(0, len(names), NAMES_PER_COMMAND)]
    tables = ("heartbeats", "deadlines", "held")
    replies = iter(
        await namespace.client.pipeline(
            [
                ("TIME",),
                ("HGET", keys.meta, "paused_ms"),
                ("ZRANGE", keys.table("workers"), 0, -1),
                *(("ZMSCORE", keys.table(table), *part) for table in tables for part in parts),
                *(("HMGET", keys.table("lost"), *part) for part in parts),
                *(("HMGET", keys.of("instance", name), "since", "source", "timeout") for name in names),
            ]
        )
    )
    now, paused, workers = next(replies), next(replies), [text(worker) for worker in next(replies)]
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    deadline_now = now_ms - int(paused or 0)
    heartbeats, deadlines, held, lost = (_joined(replies, parts) for _ in range(4))
    connected = await _connected_workers(namespace, workers, parts, incarnations)
    found = {}
    for at, (name, (since, source, timeout)) in enumerate(zip(names, replies, strict=True)):
        deadline = _number(deadlines[at])
        found[name] = Presence(
            now_ms=now_ms,
            heartbeat_ms=_number(heartbeats[at]),
            since_ms=_number(since),
            expires_in_ms=None if deadline is None else deadline - deadline_now,
            timeout_ms=_number(timeout),
            source=text(source),
            worker=connected.get(name, ""),
            is_lost=lost[at] is not None,
            is_held=held[at] is not None,
        )
    return found


async def _connected_workers(
    namespace: Namespace, workers: Sequence[str], parts: Sequence[list[str]], incarnations: Mapping[str, str]
) -> dict[str, str]:
    """Instance name -> a worker with a session of its incarnation."""
    commands = [("HMGET", namespace.keys.of("sessions", worker), *part) for worker in workers for part in parts]
    replies = iter(await namespace.client.pipeline(commands))
    found = {}
    for worker in workers:
        for name, session in zip(incarnations, _joined(replies, parts), strict=True):
            if session is not None and text(session).partition(" ")[2] == incarnations[name]:
                found[name] = worker
    return found


def _joined(replies: Iterator[Any], parts: Sequence[list[str]]) -> list[Any]:
    return [value for _ in parts for value in next(replies)]


def _number(value: bytes | None) -> int | None:
    return int(float(value)) if value else None
