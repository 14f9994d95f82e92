"""Where a topic lived, and how certain that is: also when it lived nowhere."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.computation import history_extent
from routebook_pipeline.answers.coverage import instant_of_version
from routebook_pipeline.answers.route_at import Doubt, RouteAnswer, route_at
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Position
from routebook_pipeline.lake.transactions import commit_files, utc_day, write_attempt
from routebook_pipeline.schemas import CHANGES
from tests.pipeline.rows import Writer, item

START_MS = 1_700_000_000_000


def told() -> Writer:
    """A lake that begins with version 5, loses 10 to 12, and after version 13 has another history from 11 on."""
    told = Writer(era=0, version=4)
    told.registered(item("orders"), at=START_MS)
    told.entry(Kind.BASELINE_BEGIN)
    told.registered(kind_of_entry=Kind.BASELINE_SEAT)
    told.queues(item("orders"), kind_of_entry=Kind.BASELINE_QUEUES)
    told.entry(Kind.BASELINE_END)
    told.hole(3)
    told.entry(Kind.KV_PUT)
    told.fork(11)
    told.entry(Kind.KV_PUT)
    told.entry(Kind.KV_PUT)
    return told


def keep(spark: SparkSession, lake: Lake, told: Writer) -> None:
    lake.changes.make()
    names = CHANGES.fieldNames()
    rows = spark.createDataFrame([tuple(row[name] for name in names) for row in told.rows], CHANGES)
    records = {"changes": Position(told.era, told.version).ord, LAST_MS: told.ms, OBSERVED: told.ms + 1}
    with write_attempt(lake.changes) as made:
        made.write(rows.coalesce(1).withColumn("day", utc_day(F.col("ms"))))
        commit_files(lake.changes.pin(), made.added, records=records)


class QuestionInput:
    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self.extent = history_extent(lake, None)

    def at(self, version: int, topic: str = "nowhere", *, era: int = 0) -> RouteAnswer:
        instant = instant_of_version(self.extent, version, era)
        return route_at(self.spark, self.lake, self.extent, topic, instant=instant)


@pytest.fixture(scope="module")
def inputs(plainly: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> QuestionInput:
    folder: Path = tmp_path_factory.mktemp("routes")
    lake = Lake(str(folder), "test")
    keep(plainly, lake, told())
    return QuestionInput(plainly, lake)


@pytest.mark.slow
def test_what_was_before_the_lake_began_is_in_doubt_until_a_baseline_says_it(inputs: QuestionInput) -> None:
    assert inputs.extent.first == (0, 5)
    early = inputs.at(8)
    assert (early.route, early.doubt) == (None, Doubt(1, 4))
    assert (inputs.at(9).route, inputs.at(9).doubt) == (None, None)


def test_a_hole_puts_in_doubt_also_that_there_was_no_route(inputs: QuestionInput) -> None:
    torn = inputs.at(13)
    assert (torn.route, torn.doubt) == (None, Doubt(10, 12))


@pytest.mark.slow
def test_a_route_behind_a_hole_is_in_doubt(inputs: QuestionInput) -> None:
    there = inputs.at(13, "orders")
    assert there.route is not None
    assert there.doubt == Doubt(10, 12)
    assert [row["certain"] for row in there.rows] == [False]


@pytest.mark.slow
def test_a_version_within_a_hole_and_one_behind_a_fork_are_in_doubt(inputs: QuestionInput) -> None:
    assert inputs.at(11).doubt == Doubt(10, 12)
    assert inputs.at(12, era=1).doubt is not None


def test_a_version_that_never_was_is_not_taken_for_the_one_before_it(inputs: QuestionInput) -> None:
    with pytest.raises(
        NegativeAnswerError, match=r"never was a version 5 in era 1: before it comes version 13 of era 0"
    ):
        inputs.at(5, era=1)
    with pytest.raises(NegativeAnswerError, match="never was a version 10 in era 1"):
        inputs.at(10, era=1)
    with pytest.raises(NegativeAnswerError, match="never was a version 14 in era 0"):
        inputs.at(14)


def test_doubts_are_said_in_words() -> None:
    assert str(Doubt(3, 3)) == "version 3 is missing"
    assert str(Doubt(3, 9)) == "the history between versions 3 and 9 is missing"
