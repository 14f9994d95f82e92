"""Every question, as the transforms and as the oracle answer it, and how their answers are compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isclose
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DEFAULTS, History, Instant, Window
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.transforms import (
    anomalies,
    availability,
    capacity,
    churn,
    events,
    exposure,
    failovers,
    failures,
    heartbeat_gaps,
    integrity,
    routes,
)
from tests.pipeline import oracle
from tests.pipeline.oracle import anomalies as oracle_anomalies
from tests.pipeline.oracle import availability as oracle_availability
from tests.pipeline.oracle import capacity as oracle_capacity
from tests.pipeline.oracle import churn as oracle_churn
from tests.pipeline.oracle import events as oracle_events
from tests.pipeline.oracle import exposure as oracle_exposure
from tests.pipeline.oracle import failovers as oracle_failovers
from tests.pipeline.oracle import failures as oracle_failures
from tests.pipeline.oracle import heartbeat_gaps as oracle_gaps
from tests.pipeline.oracle import integrity as oracle_integrity
from tests.pipeline.oracle import routes as oracle_routes
from tests.pipeline.oracle.history_rows import HistoryRows, Row

__all__ = ["QUESTIONS", "Question", "answers", "as_history", "compare", "oracle"]

COMPLETE_UNTIL_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Question:
    keys: tuple[str, ...]
    """The columns that identify a row of the answer."""
    of_transforms: Callable[[History, Window], DataFrame]
    of_oracle: Callable[[HistoryRows, Window], list[dict[str, Any]]]
    looks_back: bool = False
    """Whether it needs entries from before the window, and not only the state that they left."""


def _both(keys: str, transform: Any, plain: Any) -> Question:
    return Question(
        tuple(keys.split()),
        lambda history, window: transform(history, window, DEFAULTS),
        lambda rows, window: plain(rows, window, DEFAULTS),
    )


_SEAT, _GROUP, _CLUSTER = "cluster broker broker_id", "cluster broker", "cluster"

QUESTIONS: Mapping[str, Question] = {
    "route_at": Question(
        ("topic", "broker"),
        lambda history, window: routes.routes_at(history, Instant(ms=window.end_ms - 1)),
        lambda rows, window: oracle_routes.routes_at(rows, Instant(ms=window.end_ms - 1)),
    ),
    "route_diff": Question(
        ("topic", "broker"),
        lambda history, window: routes.route_diff(history, Instant(ms=window.start_ms), Instant(ms=window.end_ms)),
        lambda rows, window: oracle_routes.route_diff(rows, Instant(ms=window.start_ms), Instant(ms=window.end_ms)),
    ),
    "availability by seat": _both(_SEAT, availability.by_seat, oracle_availability.by_seat),
    "availability by group": _both(_GROUP, availability.by_group, oracle_availability.by_group),
    "availability by cluster": _both(_CLUSTER, availability.by_cluster, oracle_availability.by_cluster),
    "failures by seat": _both(_SEAT, failures.by_seat, oracle_failures.by_seat),
    "failures by cluster": _both(_CLUSTER, failures.by_cluster, oracle_failures.by_cluster),
    "flaps": _both(_SEAT, failures.flaps_by_seat, oracle_failures.flaps_by_seat),
    "heartbeat_gaps by seat": _both(_SEAT, heartbeat_gaps.by_seat, oracle_gaps.by_seat),
    "heartbeat_gaps by cluster": _both(_CLUSTER, heartbeat_gaps.by_cluster, oracle_gaps.by_cluster),
    "churn": _both(_CLUSTER, churn.by_cluster, oracle_churn.by_cluster),
    "capacity": Question(
        ("cluster", "at_ms"),
        lambda history, window: capacity.at_times(history, _instants(window), DEFAULTS),
        lambda rows, window: oracle_capacity.by_cluster(rows, _instants(window), DEFAULTS),
    ),
    "exposure by cluster": _both("cluster day", exposure.by_cluster, oracle_exposure.by_cluster),
    "exposure by group": _both(_GROUP, exposure.by_group, oracle_exposure.by_group),
    "failovers": _both("cluster broker version ms", failovers.each, oracle_failovers.each),
    "failovers by group": _both(_GROUP, failovers.by_group, oracle_failovers.by_group),
    "anomalies": Question(
        ("rule", "subject", "from_ms", "versions"),
        lambda history, window: anomalies.anomalies(history, window, DEFAULTS),
        lambda rows, window: oracle_anomalies.anomalies(rows, window, DEFAULTS),
        looks_back=True,
    ),
    "integrity": Question(
        ("era",),
        lambda history, window: integrity.by_era(history, window, COMPLETE_UNTIL_MS),
        lambda rows, window: oracle_integrity.by_era(rows, window, COMPLETE_UNTIL_MS),
    ),
    "events": _both("era version row", events.events, oracle_events.events),
    "events of a topic": Question(
        ("era", "version", "row"),
        lambda history, window: events.events(history, window, topic="topic-1"),
        lambda rows, window: oracle_events.events(rows, window, topic="topic-1"),
    ),
}


def _instants(window: Window) -> list[int]:
    """The end of the window, and at most six midnights, since each costs time."""
    return [*capacity.midnights(window)[:6], window.end_ms - 1]


def as_history(spark: SparkSession, folder: str, changes: Sequence[Row], pulses: Sequence[Row]) -> History:
    """Reads the rows from files, as the lake does."""
    frames = []
    for name, schema, rows in (("changes", CHANGES, changes), ("pulses", PULSES, pulses)):
        columns = schema.fieldNames()
        frame = spark.createDataFrame([tuple(row[column] for column in columns) for row in rows], schema)
        frame.coalesce(1).write.parquet(f"{folder}/{name}")
        frames.append(spark.read.schema(schema).parquet(f"{folder}/{name}"))
    return History(frames[0], frames[1])


def answers(question: Question, history: History, windows: Sequence[Window]) -> list[list[dict[str, Any]]]:
    """The answers for all windows, computed in one job."""
    frames = [
        question.of_transforms(history, window).withColumn("window", F.lit(number))
        for number, window in enumerate(windows)
    ]
    rows = [row.asDict(recursive=True) for row in reduce(DataFrame.unionByName, frames).collect()]
    return [
        [{name: value for name, value in row.items() if name != "window"} for row in rows if row["window"] == number]
        for number in range(len(windows))
    ]


def compare(question: Question, found: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    """The differences, row by row; at most ten lines."""
    ours, oracles = _by_key(question, found), _by_key(question, expected)
    lines = [f"{key}: only the transforms have it: {ours[key]}" for key in sorted(ours.keys() - oracles.keys())]
    lines += [f"{key}: only the oracle has it: {oracles[key]}" for key in sorted(oracles.keys() - ours.keys())]
    lines += [f"duplicates: {len(found)} rows, {len(ours)} keys"] if len(found) != len(ours) else []
    for key in sorted(ours.keys() & oracles.keys()):
        for name in oracles[key].keys() | ours[key].keys():
            value, expected_value = ours[key][name], oracles[key][name]
            if not _same(value, expected_value):
                lines.append(f"{key}: {name} is {value!r} by the transforms, {expected_value!r} by the oracle")
    return lines[:10]


def _by_key(question: Question, rows: Sequence[Row]) -> dict[str, Row]:
    return {repr([row[name] for name in question.keys]): row for row in rows}


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other
