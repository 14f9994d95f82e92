"""The route of a topic at an instant, and how certain it is, including for topics without a route."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.answers.computation import Doubt, RouteAnswer, history_extent, route_at
from routebook_pipeline.answers.coverage import instant_of_version
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, Position
from routebook_pipeline.lake.transactions import commit_files, utc_day, write_attempt
from routebook_pipeline.schemas import CHANGES
from tests.pipeline.scenario import Scenario, item

START_MS = 1_700_000_000_000


def make_scenario() -> Scenario:
    """A history that begins with version 5, loses 10 to 12, and has a fork after version 13 that continues with 11."""
    scenario = Scenario(era=0, version=4)
    scenario.registered(item("orders"), at=START_MS)
    scenario.entry(Kind.BASELINE_BEGIN)
    scenario.registered(kind=Kind.BASELINE_SEAT)
    scenario.queues(item("orders"), kind=Kind.BASELINE_QUEUES)
    scenario.entry(Kind.BASELINE_END)
    scenario.hole(3)
    scenario.entry(Kind.KV_PUT)
    scenario.fork(11)
    scenario.entry(Kind.KV_PUT)
    scenario.entry(Kind.KV_PUT)
    return scenario


def fill(lake: Lake, spark: SparkSession, scenario: Scenario) -> None:
    lake.changes.create()
    names = CHANGES.fieldNames()
    rows = spark.createDataFrame([tuple(row[name] for name in names) for row in scenario.changes], CHANGES)
    records = {"changes": Position(scenario.era, scenario.version).ord, LAST_MS: scenario.ms, OBSERVED: scenario.ms + 1}
    with write_attempt(lake.changes) as attempt:
        attempt.write(rows.coalesce(1).withColumn("day", utc_day(F.col("ms"))))
        commit_files(lake.changes.pin(), attempt.added, records=records)


class FilledLake:
    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self.extent = history_extent(lake, None)

    def route_at(self, version: int, topic: str = "unknown-topic", *, era: int = 0) -> RouteAnswer:
        instant = instant_of_version(self.extent, version, era)
        return route_at(self.spark, self.lake, self.extent, topic, instant=instant)


@pytest.fixture(scope="module")
def lake(small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FilledLake:
    folder: Path = tmp_path_factory.mktemp("routes")
    lake = Lake(str(folder), "test")
    fill(lake, small_spark, make_scenario())
    return FilledLake(small_spark, lake)


@pytest.mark.slow
def test_versions_before_the_lake_began_are_in_doubt_until_a_baseline(lake: FilledLake) -> None:
    assert lake.extent.first == (0, 5)
    early = lake.route_at(8)
    assert (early.route, early.doubt) == (None, Doubt(1, 4))
    assert (lake.route_at(9).route, lake.route_at(9).doubt) == (None, None)


def test_after_a_hole_a_missing_route_is_in_doubt(lake: FilledLake) -> None:
    after = lake.route_at(13)
    assert (after.route, after.doubt) == (None, Doubt(10, 12))


@pytest.mark.slow
def test_after_a_hole_a_route_is_in_doubt(lake: FilledLake) -> None:
    after = lake.route_at(13, "orders")
    assert after.route is not None
    assert after.doubt == Doubt(10, 12)
    assert [row["certain"] for row in after.rows] == [False]


@pytest.mark.slow
def test_a_version_inside_a_hole_and_one_after_a_fork_are_in_doubt(lake: FilledLake) -> None:
    assert lake.route_at(11).doubt == Doubt(10, 12)
    assert lake.route_at(12, era=1).doubt == Doubt(10, 12, fork=(13, 11))


def test_a_version_that_the_era_never_had_is_refused(lake: FilledLake) -> None:
    with pytest.raises(
        NegativeAnswerError, match=r"Era 1 never had a version 5; the entry before it is version 13 of era 0"
    ):
        lake.route_at(5, era=1)
    with pytest.raises(NegativeAnswerError, match="Era 1 never had a version 10"):
        lake.route_at(10, era=1)
    with pytest.raises(NegativeAnswerError, match="Era 0 never had a version 14"):
        lake.route_at(14)


def test_a_doubt_is_explained_in_words() -> None:
    assert str(Doubt(3, 3)) == "version 3 is missing"
    assert str(Doubt(3, 9)) == "the history between versions 3 and 9 is missing"
    assert str(Doubt(3, 9, fork=(12, 4))) == (
        "the history between versions 3 and 9 is missing, and another history began after version 12, with version 4"
    )
