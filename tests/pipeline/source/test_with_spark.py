"""The source used through Spark: rows, limits, and errors as the driver sees them. Few jobs: each takes a second."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import HistoryForkError, HistoryMissingError, WrongUsageError, unwrap_spark_error
from routebook_pipeline.schemas import SOURCE
from routebook_pipeline.source.data_source import register
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.source.streams import BEGAN_MS, URL_ENV, Stream


@pytest.fixture
def session(spark: SparkSession, stream: Stream) -> SparkSession:
    """The source is registered, so Spark's Python processes have the address in their environment."""
    register(spark, URL_ENV)
    return spark


def read(session: SparkSession, stream: Stream, **more: str) -> DataFrame:
    return session.read.format("routebook").options(**stream.options(**more)).load()


def summary(frame: DataFrame) -> Any:
    version = F.split("entry_id", "-")[1].cast("long")
    return frame.agg(
        F.count("*").alias("rows"),
        F.count_distinct(version).alias("distinct"),
        F.min(version).alias("first"),
        F.max(version).alias("last"),
        F.max(F.length("payload")).alias("longest"),
    ).first()


def test_a_batch_reads_the_whole_stream(session: SparkSession, stream: Stream) -> None:
    stream.fill(1_000)
    spoiled = b"\xff\xfe not UTF-8 " * 8
    stream.append([(EntryId(BEGAN_MS + 1_001, 1_001), spoiled)])
    frame = read(session, stream, entries_per_partition="300", chunk="100")
    assert frame.schema == SOURCE
    found = summary(frame)
    assert (found.rows, found.distinct, found.first, found.last) == (1_001, 1_001, 1, 1_001)
    assert found.longest == len(spoiled)


@pytest.mark.slow
def test_available_now_reads_several_batches_and_ends(session: SparkSession, stream: Stream, tmp_path: Path) -> None:
    stream.fill(1_000)
    batches: list[list[int]] = []

    def keep(frame: DataFrame, number: int) -> None:
        batches.append(sorted(int(row.entry_id.split("-")[1]) for row in frame.select("entry_id").collect()))
        # Appended after the query started: not part of "now".
        stream.fill(1_001 + number, 1_001 + number)

    query = (
        session.readStream.format("routebook")
        .options(**stream.options(max_entries_per_trigger="400", entries_per_partition="250"))
        .load()
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    assert batches == [list(range(1, 401)), list(range(401, 801)), list(range(801, 1_001))]


def test_errors_keep_their_type_at_the_driver(session: SparkSession, stream: Stream) -> None:
    ids = stream.fill(100)
    stream.delete(ids[49])
    with pytest.raises(Exception, match="RB_MISSING") as raised:
        summary(read(session, stream, entries_per_partition="40"))
    error = unwrap_spark_error(raised.value)
    assert isinstance(error, HistoryMissingError)
    assert (error.namespace, error.first, error.last) == (stream.namespace, 50, 50)

    with pytest.raises(Exception, match="RB_FORK") as raised:
        summary(read(session, stream, end_id=f"{ids[-1].ms}-200"))
    error = unwrap_spark_error(raised.value)
    assert isinstance(error, HistoryForkError)
    assert (error.namespace, error.ours, error.newest) == (stream.namespace, 200, 100)

    with pytest.raises(Exception, match="url_env") as raised:
        session.read.format("routebook").options(url="redis://:hunter2@somewhere").load()
    assert isinstance(unwrap_spark_error(raised.value), WrongUsageError)
    assert "hunter2" not in str(raised.value)
