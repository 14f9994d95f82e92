"""The example day of docs/pipeline.md, computed with Spark and rendered: the page accepts the real rows."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.history import DEFAULTS
from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.page import render
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
from tests.pipeline.example import WINDOW, day_scenario
from tests.pipeline.report.strict_html import charts, read

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> ReportData:
    history = day_scenario().history(spark)
    history.changes.cache()
    frames: dict[str, DataFrame] = {
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
        "capacity": capacity.at_times(history, [WINDOW.start_ms, WINDOW.end_ms], DEFAULTS),
        "churn": churn.by_cluster(history, WINDOW, DEFAULTS),
        "failovers": failovers.each(history, WINDOW, DEFAULTS),
        "failovers_by_group": failovers.by_group(history, WINDOW, DEFAULTS),
        "anomalies": anomalies.anomalies(history, WINDOW, DEFAULTS),
    }
    rows: dict[str, Any] = {name: [row.asDict() for row in frame.collect()] for name, frame in frames.items()}
    return ReportData("default", WINDOW, complete_until_ms=WINDOW.end_ms, **rows)


def test_spark_gives_the_figures_of_the_document(data: ReportData) -> None:
    seats = {(row["broker"], row["broker_id"]): row for row in data.availability_by_seat}
    assert seats["broker-a", 0]["unplanned_ms"] == 1_840_000
    (shop,) = data.availability_by_cluster
    assert (shop["up_ms"], shop["met"], shop["worst_group"]) == (169_760_000, False, "broker-a")
    (exposed,) = data.exposure_by_cluster
    assert (exposed["number"], exposed["detection_ms"], exposed["queue_seconds"]) == (5, 132_000, 1_476)
    (topics,) = data.churn
    assert topics["rate"] == 2
    gaps = {(row["broker"], row["broker_id"]): row["late"] for row in data.heartbeat_gaps_by_seat}
    assert gaps == {("broker-a", 0): 0, ("broker-a", 1): 24, ("broker-b", 0): 0}


def test_the_anomalies_of_the_day_are_those_of_the_document(data: ReportData) -> None:
    assert {(row["rule"], row["subject"]) for row in data.anomalies} == {
        ("flapping", "shop/broker-a/1"),
        ("headless", "shop/broker-a"),
    }


def test_the_rows_of_spark_are_rendered(data: ReportData) -> None:
    page = render(data)
    read(page)
    charts(page)
    for figure in ("97.8703 %", "99.9305 %", "98.9277 %", "30 min 40 s", "3 downtimes, 2026-11-02 14:00:00", "1,476"):
        assert figure in page
