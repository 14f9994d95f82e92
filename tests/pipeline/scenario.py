"""Builds a history entry by entry, as the rows that the lake would hold for it.

Every entry is valid by default, so that a test names only the fields that matter to it. A seat is written as
`cluster/broker/id` and a group as `cluster/broker`.
"""

import hashlib
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from routebook_pipeline.history import ERA_SHIFT, History
from routebook_pipeline.kinds import Kind
from routebook_pipeline.schemas import CHANGES, PULSES

EMPTY_CHANGE = dict.fromkeys(CHANGES.fieldNames())
EMPTY_PULSE = dict.fromkeys(PULSES.fieldNames())

SEAT = "c/b/0"
GROUP = "c/b"
ADDRESS = "127.0.0.1:1"

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
    """Another hash than the lake's: a question may only sort and group by it."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class Scenario:
    """The history of one namespace. `ms` and `version` are those of the last entry; `at` sets the time of the next."""

    def __init__(self, ns: str = "test", *, era: int = 1, version: int = 0, ms: int = 0) -> None:
        self.ns, self.era, self.version, self.ms = ns, era, version, ms
        self.changes: list[Row] = []
        self.pulses: list[Row] = []

    def entry(self, kind: Kind, /, *items: Item, at: int | None = None, **fields: Any) -> int:
        """Appends one entry and its queue items, and returns its version."""
        self.version += 1
        if at is not None:
            self.ms = at
        place = {
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
        origin = {"actor": "worker-1", "source": "127.0.0.9:40000"}
        self.changes.append({**EMPTY_CHANGE, **place, **origin, **self._keys(fields), **fields, "row": 0})
        group = {name: fields.get(name) for name in ("cluster", "broker")}
        for number, one in enumerate(items, 1):
            keys = self._keys({**group, "topic": one["topic"]})
            self.changes.append({**EMPTY_CHANGE, **place, **group, **keys, **one, "row": number})
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
        self,
        *items: Item,
        seat: str = SEAT,
        addr: str = ADDRESS,
        at: int | None = None,
        kind: Kind = Kind.BROKER_REGISTERED,
        **more: Any,
    ) -> int:
        fields = {"first": True, "acting": False, "timeout_ms": 120_000, "incarnation": "1", **more}
        return self.entry(kind, *items, at=at, **parse_seat(seat), addr=addr, **fields)

    def removed(
        self, cause: str = "expired", seat: str = SEAT, addr: str = ADDRESS, *, at: int | None = None, **more: Any
    ) -> int:
        fields = {"group_removed": False, "timeout_ms": 120_000, "incarnation": "1", **more}
        return self.entry(Kind.BROKER_REMOVED, at=at, **parse_seat(seat), addr=addr, cause=cause, **fields)

    def queues(
        self,
        *items: Item,
        group: str = GROUP,
        at: int | None = None,
        kind: Kind = Kind.QUEUES_CHANGED,
        cause: str = "register-topic",
    ) -> int:
        return self.entry(kind, *items, at=at, **parse_group(group), cause=cause)

    def write_permission(self, rule: str, group: str = GROUP, *, at: int | None = None, **more: Any) -> int:
        """`rule` is `set` or `clear-write`."""
        fields = {"cause": "operator", "perm": 6 if rule == "set" else 2, "touched": 1, **more}
        return self.entry(Kind.WRITE_PERMISSION, at=at, **parse_group(group), rule=rule, **fields)

    def hole(self, versions: int, at: int | None = None) -> None:
        """That many missing versions. The row of a hole has the first missing version."""
        first, last = self.version + 1, self.version + versions
        self.entry(Kind.HOLE, at=at, from_version=first, to_version=last, actor=None, source=None)
        self.version = last

    def fork(self, first_version: int, at: int | None = None) -> None:
        """The entries after this belong to another history, which begins with this version."""
        ended = self.version
        self.era += 1
        self.version = first_version - 2
        self.entry(Kind.FORK, at=at, from_version=ended, to_version=first_version, actor=None, source=None)

    def unreadable(self, reason: str, at: int | None = None) -> None:
        self.entry(Kind.UNREADABLE, at=at, cause=reason, raw="e30=", actor=None, source=None)

    def heartbeat_gaps(
        self,
        histogram: dict[int, int],
        seat: str = SEAT,
        *,
        to_ms: int,
        max_ms: int,
        at: int | None = None,
    ) -> None:
        """One report of a worker's heartbeat gaps: bucket -> number of gaps."""
        version = 1 + (self.pulses[-1]["version"] if self.pulses else 0)
        for bucket, count in histogram.items():
            self.pulses.append(
                {
                    **EMPTY_PULSE,
                    "ns": self.ns,
                    "era": 1,
                    "version": version,
                    "ord": ERA_SHIFT + version,
                    "ms": to_ms if at is None else at,
                    "worker": "worker-1",
                    "from_ms": to_ms - 60_000,
                    "to_ms": to_ms,
                    **parse_seat(seat),
                    "bucket": bucket,
                    "count": count,
                    "max_ms": max_ms,
                }
            )

    def history(self, spark: SparkSession) -> History:
        return History(frame_of(spark, self.changes, CHANGES), frame_of(spark, self.pulses, PULSES))


def frame_of(spark: SparkSession, rows: list[Row], schema: StructType) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)


def parse_group(group: str) -> dict[str, Any]:
    cluster, broker = group.split("/")
    return {"cluster": cluster, "broker": broker}


def parse_seat(seat: str) -> dict[str, Any]:
    group, _, broker_id = seat.rpartition("/")
    return {**parse_group(group), "broker_id": int(broker_id)}
