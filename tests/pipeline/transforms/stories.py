"""Hand-made histories: one entry a call, in order. A case is a cluster of its own, so that many cases are one job."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import ERA_SHIFT, History
from routebook_pipeline.kinds import BY_TITLE, Kind
from routebook_pipeline.schemas import CHANGES, PULSES

NAMES = {kind.value: kind.title for kind in Kind}
Item = dict[str, Any]


def put(topic: str, read: int = 4, write: int = 4, perm: int = 6, flags: int = 0) -> Item:
    return {"topic": topic, "read_queues": read, "write_queues": write, "perm": perm, "flags": flags}


def gone(topic: str) -> Item:
    return {"topic": topic, "removed": True}


class Story:
    """`ms` is the time of the next entry: set it, or name it in the call. Versions follow each other."""

    def __init__(self, ns: str = "default") -> None:
        self.ns, self.era, self.version, self.ms = ns, 1, 0, 0
        self.rows: list[dict[str, Any]] = []
        self.pulses: list[dict[str, Any]] = []

    def tell(self, kind: str | int, ms: int | None = None, queues: Iterable[Item] = (), **fields: Any) -> int:
        """Returns the version."""
        self.version += 1
        self.ms = self.ms if ms is None else ms
        code = int(BY_TITLE[kind]) if isinstance(kind, str) else kind
        place = {
            "ns": self.ns,
            "era": self.era,
            "version": self.version,
            "ord": self.era * ERA_SHIFT + self.version,
            "ms": self.ms,
            "kind": NAMES[code],
            "code": code,
            "v": 1,
            "actor": "w1",
            "source": "127.0.0.1:1",
            "ingested_ms": 10**12,
        }
        names: dict[str, Any] = {name: fields[name] for name in ("cluster", "broker") if name in fields}
        self.rows.append({**place, "row": 0, **fields})
        self.rows += [{**place, **names, "row": row, **item} for row, item in enumerate(queues, 1)]
        return self.version

    def up(self, seat: str, ms: int | None = None, addr: str = "127.0.0.1:10911", *queues: Item, **fields: Any) -> int:
        """`seat` is cluster/broker/id."""
        kind = fields.pop("kind", "broker-registered")
        return self.tell(kind, ms, queues, **_seat(seat), addr=addr, acting=fields.pop("acting", False), **fields)

    def down(self, seat: str, ms: int | None = None, cause: str = "expired", **fields: Any) -> int:
        fields = {"addr": "127.0.0.1:10911", "group_removed": False, "timeout_ms": 120_000, **fields}
        return self.tell("broker-removed", ms, **_seat(seat), cause=cause, **fields)

    def queues(self, group: str, ms: int | None = None, *queues: Item, kind: str = "queues-changed") -> int:
        return self.tell(kind, ms, queues, **_group(group))

    def permission(self, group: str, ms: int | None = None, *, writable: bool, cause: str = "operator") -> int:
        rule, perm = ("set", 6) if writable else ("clear-write", 2)
        return self.tell("write-permission", ms, **_group(group), rule=rule, perm=perm, cause=cause)

    def hole(self, length: int = 1, ms: int | None = None) -> int:
        """What is missing takes its versions along."""
        first = self.version + 1
        self.tell(int(Kind.HOLE), ms, from_version=first, to_version=first + length - 1)
        self.version = first + length - 1
        return first

    def gaps(self, seat: str, to_ms: int, buckets: dict[int, int], max_ms: int) -> None:
        version = len(self.pulses) + 1
        self.pulses += [
            {
                "ns": self.ns,
                "era": 1,
                "version": version,
                "ord": ERA_SHIFT + version,
                "ms": to_ms,
                "worker": "w1",
                "from_ms": to_ms - 60_000,
                "to_ms": to_ms,
                **_seat(seat),
                "bucket": bucket,
                "count": count,
                "max_ms": max_ms,
            }
            for bucket, count in buckets.items()
        ]

    def history(self, spark: SparkSession, rows: list[dict[str, Any]] | None = None) -> History:
        return History(changes_of(spark, self.rows if rows is None else rows), _frame(spark, self.pulses, PULSES))


def changes_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    frame = _frame(spark, rows, CHANGES)
    return frame.withColumns(
        {
            "seat_key": F.xxhash64("ns", "cluster", "broker", "broker_id"),
            "group_key": F.xxhash64("ns", "cluster", "broker"),
            "queue_key": F.xxhash64("ns", "topic", "cluster", "broker"),
        }
    )


def _frame(spark: SparkSession, rows: list[dict[str, Any]], schema: Any) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def _seat(seat: str) -> dict[str, Any]:
    cluster, broker, number = seat.split("/")
    return {"cluster": cluster, "broker": broker, "broker_id": int(number)}


def _group(group: str) -> dict[str, Any]:
    cluster, broker = group.split("/")
    return {"cluster": cluster, "broker": broker}
