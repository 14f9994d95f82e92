"""Rows of `changes` and `pulses` as the lake would hold them, written entry by entry: valid by default."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from routebook_pipeline.history import ERA_SHIFT
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import CHANGES, PULSES

EMPTY_CHANGE = dict.fromkeys(CHANGES.fieldNames())
EMPTY_PULSE = dict.fromkeys(PULSES.fieldNames())

Row = dict[str, Any]
Item = dict[str, Any]


def item(topic: str, read: int = 8, write: int = 8, perm: int = 6, flags: int = 0) -> Item:
    return {
        "topic": topic,
        "removed": False,
        "read_queues": read,
        "write_queues": write,
        "perm": perm,
        "flags": flags,
    }


def removed_item(topic: str) -> Item:
    return {"topic": topic, "removed": True}


def key_of(*parts: object) -> int:
    """Another hash than the lake's: a question may sort and group by it, and know no more of it."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@dataclass
class Writer:
    """Writes one namespace's history. `ms` and `version` are those of the last entry."""

    ns: str = "test"
    era: int = 1
    version: int = 0
    ms: int = 0
    rows: list[Row] = field(default_factory=list)
    pulses: list[Row] = field(default_factory=list)
    pulse_version: int = 0

    def entry(self, kind: Kind, /, *items: Item, at: int | None = None, **fields: Any) -> int:
        """Appends one entry and its queue items; returns its version."""
        self.version += 1
        if at is not None:
            self.ms = at
        placed = {
            "ns": self.ns,
            "era": self.era,
            "version": self.version,
            "ord": self.era * ERA_SHIFT + self.version,
            "ms": self.ms,
            "kind": kind.title,
            "code": int(kind),
            "v": 1,
            "ingested_ms": self.ms,
        }
        by = {"actor": "worker-1", "source": "127.0.0.9:40000"}
        self.rows.append({**EMPTY_CHANGE, **placed, **by, **self._keys(fields), **fields, "row": 0})
        group = {name: fields.get(name) for name in ("cluster", "broker")}
        for place, one in enumerate(items, 1):
            keys = self._keys({**group, "topic": one["topic"]})
            self.rows.append({**EMPTY_CHANGE, **placed, **group, **keys, **one, "row": place})
        return self.version

    def _keys(self, fields: dict[str, Any]) -> dict[str, int | None]:
        cluster, broker = fields.get("cluster"), fields.get("broker")
        if cluster is None or broker is None:
            return {}
        broker_id, topic = fields.get("broker_id"), fields.get("topic")
        return {
            "group_key": key_of(self.ns, cluster, broker),
            "seat_key": None if broker_id is None else key_of(self.ns, cluster, broker, broker_id),
            "queue_key": None if topic is None else key_of(self.ns, topic, cluster, broker),
        }

    def registered(
        self, *items: Item, seat: tuple[str, str, int] = ("c", "b", 0), addr: str = "127.0.0.1:1", **more: Any
    ) -> int:
        fields: dict[str, Any] = {"first": True, "acting": False, "timeout_ms": 120_000, "incarnation": "1", **more}
        kind = fields.pop("kind_of_entry", Kind.BROKER_REGISTERED)
        cluster, broker, broker_id = seat
        return self.entry(kind, *items, cluster=cluster, broker=broker, broker_id=broker_id, addr=addr, **fields)

    def removed(
        self, cause: str = "expired", seat: tuple[str, str, int] = ("c", "b", 0), addr: str = "127.0.0.1:1", **more: Any
    ) -> int:
        fields: dict[str, Any] = {"group_removed": False, "timeout_ms": 120_000, "incarnation": "1", **more}
        cluster, broker, broker_id = seat
        return self.entry(
            Kind.BROKER_REMOVED, cluster=cluster, broker=broker, broker_id=broker_id, addr=addr, cause=cause, **fields
        )

    def queues(self, *items: Item, group: tuple[str, str] = ("c", "b"), **more: Any) -> int:
        fields: dict[str, Any] = {"cause": "register-topic", **more}
        return self.entry(Kind.QUEUES_CHANGED, *items, cluster=group[0], broker=group[1], **fields)

    def write_permission(self, rule: str, group: tuple[str, str] = ("c", "b"), **more: Any) -> int:
        fields: dict[str, Any] = {"cause": "operator", "perm": 6 if rule == "set" else 2, "touched": 1, **more}
        return self.entry(Kind.WRITE_PERMISSION, cluster=group[0], broker=group[1], rule=rule, **fields)

    def hole(self, versions: int, at: int | None = None) -> None:
        """In place of as many entries. A hole is a row, not an entry: its version is the first one missing."""
        first, last = self.version + 1, self.version + versions
        self.entry(Kind.HOLE, at=at, from_version=first, to_version=last, actor=None, source=None)
        self.version = last

    def fork(self, first_version: int, at: int | None = None) -> None:
        """The history that comes now is another one and begins with this version."""
        ended = self.version
        self.era += 1
        self.version = first_version - 2
        self.entry(Kind.FORK, at=at, from_version=ended, to_version=first_version, actor=None, source=None)

    def unreadable(self, reason: str, at: int | None = None) -> None:
        self.entry(Kind.UNREADABLE, at=at, cause=reason, raw="e30=", actor=None, source=None)

    def pulse(
        self,
        histogram: dict[int, int],
        seat: tuple[str, str, int] = ("c", "b", 0),
        *,
        to_ms: int,
        max_ms: int,
        at: int | None = None,
    ) -> None:
        self.pulse_version += 1
        cluster, broker, broker_id = seat
        for bucket, count in histogram.items():
            self.pulses.append(
                {
                    **EMPTY_PULSE,
                    "ns": self.ns,
                    "era": 1,
                    "version": self.pulse_version,
                    "ord": ERA_SHIFT + self.pulse_version,
                    "ms": to_ms if at is None else at,
                    "worker": "worker-1",
                    "from_ms": to_ms - 60_000,
                    "to_ms": to_ms,
                    "cluster": cluster,
                    "broker": broker,
                    "broker_id": broker_id,
                    "bucket": bucket,
                    "count": count,
                    "max_ms": max_ms,
                }
            )
