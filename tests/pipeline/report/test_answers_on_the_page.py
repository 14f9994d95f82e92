"""The day of the documents, asked with Spark and put on the page: the rows that the questions really give."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from routebook_pipeline.history import DEFAULTS, History
from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.page import render
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.transforms import (
    anomalies,
    availability,
    capacity,
    churn,
    exposure,
    failovers,
    failures,
    heartbeat_gaps,
    integrity,
)
from tests.pipeline import example
from tests.pipeline.example import WINDOW
from tests.pipeline.oracle.told import Told
from tests.pipeline.report.reading import pictures, read

pytestmark = pytest.mark.slow


def history_of(spark: SparkSession, told: Told) -> History:
    def frame(rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
        return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)

    return History(frame(told.changes, CHANGES), frame(told.pulses, PULSES))


@pytest.fixture(scope="module")
def findings(spark: SparkSession) -> ReportData:
    history = history_of(spark, example.history())
    history.changes.cache()
    given: dict[str, DataFrame] = {
        "integrity": integrity.by_era(history, WINDOW, WINDOW.end_ms),
        "availability_by_cluster": availability.by_cluster(history, WINDOW, DEFAULTS),
        "availability_by_group": availability.by_group(history, WINDOW, DEFAULTS),
        "availability_by_seat": availability.by_seat(history, WINDOW, DEFAULTS),
        "failures_by_cluster": failures.by_cluster(history, WINDOW, DEFAULTS),
        "failures_by_seat": failures.by_seat(history, WINDOW, DEFAULTS),
        "flaps": failures.flaps_by_seat(history, WINDOW, DEFAULTS),
        "heartbeat_gaps_by_cluster": heartbeat_gaps.by_cluster(history, WINDOW, DEFAULTS),
        "heartbeat_gaps_by_seat": heartbeat_gaps.by_seat(history, WINDOW, DEFAULTS),
        "exposure_by_cluster": exposure.by_cluster(history, WINDOW, DEFAULTS),
        "exposure_by_group": exposure.by_group(history, WINDOW, DEFAULTS),
        "capacity": capacity.by_cluster(history, [WINDOW.start_ms, WINDOW.end_ms], DEFAULTS),
        "churn": churn.by_cluster(history, WINDOW, DEFAULTS),
        "failovers": failovers.each(history, WINDOW, DEFAULTS),
        "failovers_by_group": failovers.by_group(history, WINDOW, DEFAULTS),
        "anomalies": anomalies.anomalies(history, WINDOW, DEFAULTS),
    }
    rows: dict[str, Any] = {name: [row.asDict() for row in frame.collect()] for name, frame in given.items()}
    return ReportData("default", WINDOW, complete_until_ms=WINDOW.end_ms, **rows)


def test_spark_says_what_the_documents_say(findings: ReportData) -> None:
    seats = {(row["broker"], row["broker_id"]): row for row in findings.availability_by_seat}
    assert seats["broker-a", 0]["unplanned_ms"] == 1_840_000
    (shop,) = findings.availability_by_cluster
    assert (shop["up_ms"], shop["met"], shop["worst_group"]) == (169_760_000, False, "broker-a")
    (exposed,) = findings.exposure_by_cluster
    assert (exposed["number"], exposed["detection_ms"], exposed["queue_seconds"]) == (5, 132_000, 1_476)
    (topics,) = findings.churn
    assert topics["rate"] == 2
    gaps = {(row["broker"], row["broker_id"]): row["late"] for row in findings.heartbeat_gaps_by_seat}
    assert gaps == {("broker-a", 0): 0, ("broker-a", 1): 24, ("broker-b", 0): 0}


def test_the_anomalies_of_the_day_are_those_of_the_documents(findings: ReportData) -> None:
    assert {(row["rule"], row["subject"]) for row in findings.anomalies} == {
        ("flapping", "shop/broker-a/1"),
        ("headless", "shop/broker-a"),
    }


def test_rows_of_spark_make_a_page(findings: ReportData) -> None:
    page = render(findings)
    read(page)
    pictures(page)
    for said in ("97.8703 %", "99.9305 %", "98.9277 %", "30 min 40 s", "3 absences, 2026-11-02 14:00:00", "1,476"):
        assert said in page
