"""The columns of the lake's tables and of every answer.

Tables: columns are added at the end and are nullable; no column is ever renamed or retyped. Answers: durations and
instants are milliseconds; a ratio is a double, and null when its denominator is zero.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

_STRING, _INT, _LONG, _BOOLEAN, _DOUBLE = StringType(), IntegerType(), LongType(), BooleanType(), DoubleType()


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


_ADDRESSES = MapType(_LONG, _STRING)


_ENTRY = columns((_LONG, "version"), (_STRING, "kind cause actor source"))

ROUTE = columns(
    (_STRING, "topic cluster broker"),
    (_INT, "read_queues write_queues perm flags"),
    (_ADDRESSES, "addresses"),
    (_STRING, "zone"),
    (_BOOLEAN, "acting certain"),
    (_LONG, "doubt_from_version doubt_to_version"),
)
"""1 `route_at`. One row a topic and group that has queues; `addresses` are those of its UP seats by id and may be
empty. A topic of which no row has an address has no route.
"""

ROUTE_DIFF = columns(
    (_STRING, "topic cluster broker difference"),
    (_INT, "read_queues_before write_queues_before perm_before flags_before"),
    (_ADDRESSES, "addresses_before"),
    (_INT, "read_queues_after write_queues_after perm_after flags_after"),
    (_ADDRESSES, "addresses_after"),
    (ArrayType(_ENTRY), "entries"),
)
"""2 `route_diff`. `difference`: added, removed, changed. `entries`: what happened in between to this topic of this
group, or to the group's seats and permissions, by version.
"""

AVAILABILITY_BY_SEAT = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id since_ms up_ms unplanned_ms planned_ms unknown_ms"),
    (_DOUBLE, "availability availability_all"),
)
"""3 `availability`. Seats with evidence before the end of the window. `since_ms`: start of the window, or the first
evidence.
"""

AVAILABILITY_BY_GROUP = columns(
    (_STRING, "cluster broker"),
    (_LONG, "up_ms unplanned_ms planned_ms unknown_ms"),
    (_DOUBLE, "availability availability_all"),
    (_LONG, "readable_ms unreadable_ms readable_unknown_ms"),
    (_DOUBLE, "readable"),
)
"""The first six are of seat 0: the group can be written to. `unreadable_ms`: all seats DOWN. `readable`: readable_ms /
(readable_ms + unreadable_ms). A group that never had a seat 0 has null there.
"""

AVAILABILITY_BY_CLUSTER = columns(
    (_STRING, "cluster"),
    (_LONG, "groups up_ms unplanned_ms planned_ms unknown_ms"),
    (_DOUBLE, "availability availability_all"),
    (_STRING, "worst_group"),
    (_DOUBLE, "worst_availability objective budget_ms"),
    (_LONG, "spent_ms"),
    (_BOOLEAN, "met"),
    (_LONG, "paused_ms"),
)
"""`groups`: those with a seat 0. `worst_group`: lowest availability, first by name among equals. `paused_ms` is the
whole namespace's.
"""

FAILURES = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id unplanned planned unfinished"),
    (MapType(_STRING, _LONG), "causes"),
    (_LONG, "up_ms"),
    (_DOUBLE, "mtbf_ms mttr_ms"),
)
"""4 `failures`. `unplanned`, `planned`: DOWN intervals that start in the window. `unfinished`, `mttr_ms`: of the
unplanned ones those without, and the mean length of those with, an UP as their end before the window's. `causes`:
first cause -> number, both kinds. By seat; by cluster `broker` and `broker_id` are null and every column is over all
its seats.
"""

FLAPS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id flaps"),
    (ArrayType(columns((_LONG, "first_ms last_ms number"))), "episodes"),
)
"""5 `flaps`. Seats with a flap or an episode. Both kinds of DOWN count."""

HEARTBEAT_GAPS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id number max_ms"),
    (_DOUBLE, "p50_ms p90_ms p99_ms p999_ms"),
    (_LONG, "late"),
    (_DOUBLE, "late_share"),
)
"""6 `heartbeat_gaps`. By cluster `broker` and `broker_id` are null."""

CHURN = columns(
    (_STRING, "cluster"),
    (_LONG, "topics_before topics_after created removed passing resized"),
    (_DOUBLE, "rate"),
)
"""7 `churn`."""

CAPACITY = columns(
    (_STRING, "cluster"),
    (_LONG, "at_ms write_capacity read_capacity groups"),
    (_DOUBLE, "mean peak cv gini"),
    (_STRING, "top_topic"),
    (_DOUBLE, "top_share"),
)
"""8 `capacity`. One row a cluster and instant. `top_topic`: most of the write capacity, first by name among equals."""

EXPOSURE_BY_CLUSTER = columns(
    (_STRING, "cluster day"),
    (_LONG, "number detection_ms p50_ms p95_ms max_ms"),
    (_DOUBLE, "client_mean_ms"),
    (_LONG, "client_worst_ms"),
    (_DOUBLE, "queue_seconds"),
)
"""9 `exposure`. `detection_ms` is the sum, `client_mean_ms` the mean detection and half a poll, `client_worst_ms` the
longest detection and a whole one.
"""

EXPOSURE_BY_GROUP = columns(
    (_STRING, "cluster broker"),
    (_LONG, "number detection_ms exposed_ms"),
    (_DOUBLE, "queue_seconds"),
)
"""`exposed_ms`: length of the union of [ms - detection, ms), not clipped: overlaps count once."""

FAILOVERS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "version ms"),
    (_STRING, "from_address to_address"),
    (_LONG, "gap_ms"),
    (_BOOLEAN, "planned"),
)
"""10 `failovers`, one row each."""

FAILOVERS_BY_GROUP = columns(
    (_STRING, "cluster broker"), (_LONG, "failovers planned gap_ms longest_gap_ms headless_ms")
)
"""Groups with a failover in the window or a headless time in it."""

ANOMALIES = columns(
    (_STRING, "rule severity subject"),
    (_LONG, "from_ms to_ms"),
    (_DOUBLE, "value threshold"),
    (ArrayType(_LONG), "versions"),
)
"""11 `anomalies`. `subject`: cluster, cluster/broker or cluster/broker/id. `versions`: the entries that prove it,
rising.
"""

INTEGRITY = columns(
    (_INT, "era"),
    (_LONG, "first_version last_version entries"),
    (ArrayType(columns((_LONG, "from_version to_version"))), "holes"),
    (_LONG, "missing forks late duplicates"),
    (MapType(_STRING, _LONG), "unreadable"),
    (_LONG, "baselines complete_until_ms"),
    (_BOOLEAN, "ok"),
)
"""12 `integrity`. One row an era with entries in the window. `missing`: versions in holes."""
