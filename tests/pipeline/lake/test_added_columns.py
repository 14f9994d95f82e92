"""A release that adds a column works with files and readers of the release before."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from routebook_pipeline.lake import maintenance
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.reparse import reparse
from routebook_pipeline.lake.tables import Lake, Table
from routebook_pipeline.lake.transactions import commit_files, write_attempt
from routebook_pipeline.schemas import CHANGES, columns
from tests.pipeline.lake.streams import START_MS, entries, frame, payload

OLD_COLUMNS = columns((LongType(), "ord ms"), (StringType(), "raw"))
NEW_COLUMNS = StructType([*OLD_COLUMNS.fields, *columns((BooleanType(), "first"), (StringType(), "zone")).fields])


def add(spark: SparkSession, table: Table, *rows: tuple[Any, ...]) -> None:
    frame = spark.createDataFrame(rows, table.columns).withColumn(table.partition, F.lit("2023-12-09"))
    with write_attempt(table) as attempt:
        attempt.write(frame.coalesce(1))
        commit_files(table.pin(), attempt.added, records={})


def rows_of(spark: SparkSession, table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.pin().read(spark).collect())


@pytest.mark.slow
def test_a_reparse_keeps_the_columns_of_a_newer_release(spark: SparkSession, lake: Lake) -> None:
    newer = Table("ns", lake.changes.folder, "changes", StructType([*CHANGES.fields, StructField("new", StringType())]))
    newer.create()
    raw = (f"{START_MS + 3}-3", payload(3, v=2))
    commit(frame(spark, [*entries(1, 2), raw]).coalesce(1), newer, ingested_ms=5)
    pinned = newer.pin()
    rows = pinned.read(spark).withColumn("new", F.lit("kept")).withColumn("day", F.lit(pinned.files[0].day))
    with write_attempt(newer) as attempt:
        attempt.write(rows)
        commit_files(pinned, attempt.added, records={}, removed=pinned.files)

    assert reparse(spark, lake, known_format=2).readable == 1
    found = newer.pin().read(spark).where("row = 0").select("version", "code", "new").collect()
    assert sorted(map(tuple, found)) == [(1, 11, "kept"), (2, 11, "kept"), (3, 11, None)]


@pytest.mark.slow
def test_an_added_column_is_null_in_older_rows_and_ignored_by_older_readers(spark: SparkSession, tmp_path: Any) -> None:
    folder = Folder.of(str(tmp_path / "table"))
    older, newer = Table("ns", folder, "table", OLD_COLUMNS), Table("ns", folder, "table", NEW_COLUMNS)
    older.create()
    add(spark, older, (1, 10, "a"), (2, 20, None))

    newer.create()
    assert rows_of(spark, newer) == [(1, 10, "a", None, None), (2, 20, None, None, None)]
    add(spark, newer, (3, 30, None, True, "z"))
    # The older release continues to read and write.
    older.create()
    add(spark, older, (4, 40, "d"))
    rows = [(1, 10, "a", None, None), (2, 20, None, None, None), (3, 30, None, True, "z"), (4, 40, "d", None, None)]
    assert rows_of(spark, newer) == rows
    assert rows_of(spark, older) == [row[:3] for row in rows]

    # After the older release has joined the files.
    assert maintenance.compact_table(older).into == 1
    assert rows_of(spark, newer) == rows
    assert rows_of(spark, older) == [row[:3] for row in rows]
    assert [(file.first_ord, file.last_ord, file.readable_rows) for file in newer.pin().files] == [(1, 4, 2)]
