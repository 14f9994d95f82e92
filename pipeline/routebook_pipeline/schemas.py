"""The columns of the lake's tables. Columns are added at the end, nullable; none is renamed or retyped."""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

ERA_SHIFT = 1 << 48
"""`ord = era * ERA_SHIFT + version`: the order of everything in a namespace, across forks."""

_STRING, _INT, _LONG, _BOOLEAN = StringType(), IntegerType(), LongType(), BooleanType()


def columns(*groups: tuple[DataType, str]) -> StructType:
    """In this order; each group is a type and the names that have it."""
    return StructType([StructField(name, kind) for kind, names in groups for name in names.split()])


SOURCE = StructType([StructField("entry_id", _STRING), StructField("payload", BinaryType())])
"""An entry as the stream holds it. Binary: one payload that is not UTF-8 would end the query otherwise."""

CHANGES = columns(
    (_STRING, "ns"),
    (_INT, "era"),
    (_LONG, "version"),
    (_INT, "row"),
    (_LONG, "ord ms"),
    (_STRING, "kind"),
    (_INT, "code v"),
    (_STRING, "cluster broker"),
    (_LONG, "broker_id"),
    (_STRING, "addr incarnation cause"),
    (_BOOLEAN, "first acting"),
    (_STRING, "zone"),
    (_BOOLEAN, "group_removed"),
    (_STRING, "topic"),
    (_BOOLEAN, "removed"),
    (_INT, "read_queues write_queues perm flags"),
    (_STRING, "rule"),
    (_INT, "touched"),
    (_LONG, "last_heartbeat_ms timeout_ms from_ms to_ms from_version to_version"),
    (_STRING, "actor source"),
    (_LONG, "seat_key group_key queue_key"),
    (_STRING, "raw"),
    (_LONG, "ingested_ms lost_ms"),
)
"""An entry is its row 0, without a topic; each of its queue items is one more, rows 1, 2, …, with the entry's kind,
place and group, a topic, and nothing that belongs to a seat (`addr`, `cause`, …). Unique by (era, version, row).

`ingested_ms` is the store's own clock when the end of the batch was noted: an entry of a later batch has no earlier
`ms`, unless that clock stepped back.
"""

PULSES = columns(
    (_STRING, "ns"),
    (_INT, "era"),
    (_LONG, "version ord ms"),
    (_STRING, "worker"),
    (_LONG, "from_ms to_ms"),
    (_STRING, "cluster broker"),
    (_LONG, "broker_id"),
    (_INT, "bucket"),
    (_LONG, "count max_ms"),
)
"""One row a bucket of a seat's histogram. `max_ms` is the seat's, repeated on each of its buckets."""

SNAPSHOTS = StructType([StructField("day", _STRING), *CHANGES.fields])
"""Of everything before the start of `day`, those rows of `changes` that any later question still depends on: a question
over the snapshot and what came after it has the same answer as over everything.
"""
