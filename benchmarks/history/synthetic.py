"""A synthetic history of any length, computed by Spark from a running number, so that equal lengths give equal rows.

Ten rows are seven entries: four about a seat that registers, changes or is removed, and three about the queues of one
topic with two rows each (row 0 is the entry, and the next row its queue item). A longer history covers more time, not
more brokers.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.tables import OBSERVED, Lake
from routebook_pipeline.lake.transactions import commit_files, utc_day, write_attempt
from routebook_pipeline.schemas import CHANGES

NAMESPACE = "default"
CLUSTERS = 6
GROUPS = 2_000
SEATS_A_GROUP = 2
TOPICS = 20_000
FIRST_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
ROWS_A_DAY = 1_000_000
_ROWS, _ENTRIES = 10, 7


def entries_of(rows: int) -> int:
    assert rows % _ROWS == 0, f"{rows} is not a multiple of {_ROWS}"
    return rows // _ROWS * _ENTRIES


def end_of(rows: int, rows_a_day: int = ROWS_A_DAY) -> int:
    """The first instant after the history."""
    return FIRST_MS + rows * (DAY_MS // rows_a_day) + 1


def history(spark: SparkSession, rows: int, rows_a_day: int = ROWS_A_DAY) -> DataFrame:
    """Columns: `schemas.CHANGES`."""
    step_ms = DAY_MS // rows_a_day
    number, place = F.col("id"), F.col("id") % _ROWS
    is_seat = place < 4
    version = F.floor(number / _ROWS) * _ENTRIES + F.when(is_seat, place + 1).otherwise(F.floor((place - 4) / 2) + 5)
    # The row of a change and that of its item are drawn from the same number.
    drawn = F.abs(F.xxhash64(version))
    group = drawn % GROUPS
    # Fifty topics a group, each in five groups.
    topic = (group * (TOPICS // GROUPS) + F.floor(drawn / (8 * GROUPS)) % 50) % TOPICS
    nothing = F.lit(None)
    row = F.when(is_seat, 0).otherwise((place - 4) % 2)
    is_item = ~is_seat & (row == 1)
    fate = F.floor(drawn / GROUPS) % 8
    comes = is_seat & (fate < 5)
    values: dict[str, Column] = {
        "ns": F.lit(NAMESPACE),
        "era": F.lit(0),
        "version": version,
        "row": row,
        "ord": version,
        "ms": F.lit(FIRST_MS) + (number - row) * step_ms,
        "code": F.when(comes, F.when(fate < 3, int(Kind.BROKER_REGISTERED)).otherwise(int(Kind.BROKER_CHANGED)))
        .when(is_seat, int(Kind.BROKER_REMOVED))
        .otherwise(int(Kind.QUEUES_CHANGED)),
        "v": F.lit(1),
        "cluster": F.concat(F.lit("cluster-"), group % CLUSTERS),
        "broker": F.concat(F.lit("broker-"), F.lpad(group.cast("string"), 5, "0")),
        "broker_id": F.when(is_seat, F.floor(drawn / (8 * GROUPS)) % SEATS_A_GROUP),
        "addr": F.when(is_seat, F.concat(F.lit("127.0.0."), group % 250 + 1, F.lit(":"), F.lit(10_000) + group)),
        "cause": F.when(is_seat & ~comes, F.element_at(F.array(*map(F.lit, CAUSES)), (fate - 4).cast("int"))),
        "first": F.when(comes, F.lit(False)),
        "group_removed": F.when(is_seat & ~comes, F.lit(False)),
        "topic": F.when(is_item, F.concat(F.lit("topic-"), F.lpad(topic.cast("string"), 5, "0"))),
        "removed": F.when(is_item, F.floor(drawn / GROUPS) % 16 == 0),
        **{name: F.when(is_item, F.floor(drawn / GROUPS) % 8 + 4) for name in ("read_queues", "write_queues")},
        "perm": F.when(is_item, F.lit(6)),
        "flags": F.when(is_item, F.lit(0)),
        "last_heartbeat_ms": F.when(is_seat & ~comes, F.lit(FIRST_MS) + number * step_ms - 60_000),
        "actor": F.lit("worker-1"),
        "ingested_ms": F.lit(end_of(rows, rows_a_day)),
    }
    drafts = spark.range(rows).select(
        *[values.get(field.name, nothing).cast(field.dataType).alias(field.name) for field in CHANGES.fields]
    )
    group_of = ("cluster", "broker")
    finished = {
        "kind": _title(F.col("code")),
        "seat_key": F.when(F.col("broker_id").isNotNull(), F.xxhash64("ns", *group_of, "broker_id")),
        "group_key": F.xxhash64("ns", *group_of),
        "queue_key": F.when(F.col("topic").isNotNull(), F.xxhash64("ns", "topic", *group_of)),
    }
    return drafts.withColumns(finished).select(*CHANGES.fieldNames())


def fill(spark: SparkSession, lake: Lake, rows: int, rows_a_day: int = ROWS_A_DAY) -> None:
    """Fills the lake with one commit like those of an ingest, without a stream."""
    lake.changes.create()
    lake.pulses.create()
    made_of = history(spark, rows, rows_a_day)
    with write_attempt(lake.changes) as made:
        made.write(made_of.withColumn(lake.changes.partition, utc_day(F.col("ms"))))
        records = {lake.changes.name: entries_of(rows), OBSERVED: end_of(rows, rows_a_day)}
        commit_files(lake.changes.pin(), made.added, records=records)


CAUSES = ("unregistered", "connection-lost", "expired")


def _title(code: Column) -> Column:
    kinds = (Kind.BROKER_REGISTERED, Kind.BROKER_CHANGED, Kind.BROKER_REMOVED)
    title = F.lit(Kind.QUEUES_CHANGED.title)
    for kind in kinds:
        title = F.when(code == int(kind), kind.title).otherwise(title)
    return title
