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
    """Columns in this order; each group is a type and the names of the columns that have it."""
    return StructType([StructField(name, kind) for kind, names in groups for name in names.split()])


SOURCE = StructType([StructField("entry_id", _STRING), StructField("payload", BinaryType())])
"""An entry of the stream. The payload is binary, because a text that is not UTF-8 would end the query."""

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
"""Row 0 is the entry itself and has no topic. Each queue item of the entry is one more row (1, 2, …) with the entry's
kind, place and group and a topic, but without what belongs to a seat (`addr`, `cause`, …). Rows are unique by (era,
version, row).

`ingested_ms` is the store's clock when the end of the batch was noted. An entry of a later batch never has an earlier
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
"""One row per bucket of a seat's histogram of heartbeat gaps. `max_ms` is the seat's, repeated for each bucket."""

SNAPSHOTS = StructType([StructField("day", _STRING), *CHANGES.fields])
"""The rows of `changes` before the start of `day` that later questions still depend on: a question over a snapshot and
the entries after it has the same answer as over all entries.
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
"""1 `route`. One row per topic and group that has queues for it. `addresses` are those of the group's UP seats by id. A
topic has no route if `addresses` is empty in all its rows.
"""

ROUTE_DIFF = columns(
    (_STRING, "topic cluster broker difference"),
    (_INT, "read_queues_before write_queues_before perm_before flags_before"),
    (_ADDRESSES, "addresses_before"),
    (_INT, "read_queues_after write_queues_after perm_after flags_after"),
    (_ADDRESSES, "addresses_after"),
    (ArrayType(_ENTRY), "entries"),
    (_LONG, "entry_count"),
)
"""2 `route-diff`. `difference`: added, removed or changed. A row with a topic describes its queues in this group, and
`entries` are those in between with an item of the topic. A row without a topic describes the group: its addresses, and
the entries in between about its seats and permissions. `entries`: the newest 20, by version; `entry_count`: all.
"""

AVAILABILITY_BY_SEAT = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id since_ms up_ms unplanned_ms planned_ms unknown_ms"),
    (_DOUBLE, "availability availability_all"),
)
"""3 `availability`. Seats with evidence before the end of the window. `since_ms`: start of the window, or the seat's
first evidence if that is later.
"""

AVAILABILITY_BY_GROUP = columns(
    (_STRING, "cluster broker"),
    (_LONG, "up_ms unplanned_ms planned_ms unknown_ms"),
    (_DOUBLE, "availability availability_all"),
    (_LONG, "readable_ms unreadable_ms readable_unknown_ms"),
    (_DOUBLE, "readable"),
)
"""The columns up to `availability_all` are those of seat 0, whether the group can be written to; they are null for a
group that never had a seat 0. `unreadable_ms`: all seats DOWN. `readable`: readable_ms / (readable_ms + unreadable_ms).
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
"""`groups`: the number of groups with a seat 0. `worst_group`: the lowest availability; among equals the first by name.
`paused_ms` is that of the whole namespace.
"""

FAILURES = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id unplanned planned unfinished"),
    (MapType(_STRING, _LONG), "causes"),
    (_LONG, "up_ms"),
    (_DOUBLE, "mtbf_ms mttr_ms"),
)
"""4 `failures`. `unplanned`, `planned`: DOWN intervals that start in the window. `unfinished`: unplanned ones that were
not followed by an UP before the end of the window. `mttr_ms`: mean length of those that were. `causes`: first cause ->
number, of both kinds. By cluster, `broker` and `broker_id` are null and every column covers all seats of the cluster.
"""

FLAPS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id flaps"),
    (ArrayType(columns((_LONG, "first_ms last_ms number"))), "episodes"),
)
"""5 `flaps`. Seats with a flap or an episode. Planned and unplanned DOWNs count."""

HEARTBEAT_GAPS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "broker_id number max_ms"),
    (_DOUBLE, "p50_ms p90_ms p99_ms p999_ms"),
    (_LONG, "late"),
    (_DOUBLE, "late_share"),
)
"""6 `heartbeat-gaps`. By cluster, `broker` and `broker_id` are null."""

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
"""8 `capacity`. One row per cluster and instant. `top_topic`: the topic with the largest write capacity; among equals
the first by name.
"""

EXPOSURE_BY_CLUSTER = columns(
    (_STRING, "cluster day"),
    (_LONG, "number detection_ms p50_ms p95_ms max_ms"),
    (_DOUBLE, "client_mean_ms"),
    (_LONG, "client_worst_ms"),
    (_DOUBLE, "queue_seconds"),
)
"""9 `exposure`. `detection_ms`: sum of all detection times. `client_mean_ms`: mean detection time plus half a poll.
`client_worst_ms`: longest detection time plus a whole poll.
"""

EXPOSURE_BY_GROUP = columns(
    (_STRING, "cluster broker"),
    (_LONG, "number detection_ms exposed_ms"),
    (_DOUBLE, "queue_seconds"),
)
"""`exposed_ms`: length of the union of [ms - detection, ms), so overlaps count once. It is not cut to the window."""

FAILOVERS = columns(
    (_STRING, "cluster broker"),
    (_LONG, "version ms"),
    (_STRING, "from_address to_address"),
    (_LONG, "gap_ms"),
    (_BOOLEAN, "planned"),
)
"""10 `failovers`. One row per failover."""

FAILOVERS_BY_GROUP = columns(
    (_STRING, "cluster broker"), (_LONG, "failovers planned gap_ms longest_gap_ms headless_ms")
)
"""Groups that had a failover or were headless in the window."""

ANOMALIES = columns(
    (_STRING, "rule severity subject"),
    (_LONG, "from_ms to_ms"),
    (_DOUBLE, "value threshold"),
    (ArrayType(_LONG), "versions"),
)
"""11 `anomalies`. `subject`: cluster, cluster/broker or cluster/broker/id. `versions`: the entries that prove it, in
order.
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
"""12 `integrity`. One row per era with entries in the window. `missing`: the number of versions in holes."""

EVENTS = columns(
    (_INT, "era"),
    (_LONG, "version"),
    (_INT, "row"),
    (_LONG, "ms"),
    (_STRING, "kind cluster broker"),
    (_LONG, "broker_id"),
    (_STRING, "topic before after cause actor source"),
)
"""13 `events`. One row per entry (`row` 0) and per queue item of an entry, in their order. `after`: what the row states
about its seat or queue; `before`: what the last row about the same seat or queue stated.
"""
