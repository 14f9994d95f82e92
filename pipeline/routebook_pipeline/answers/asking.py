"""What is computed for each (question, level) of the catalogue."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from routebook_pipeline import shapes
from routebook_pipeline.history import History, Instant, Thresholds, Window
from routebook_pipeline.transforms import (
    anomalies,
    availability,
    capacity,
    churn,
    diff,
    exposure,
    failovers,
    failures,
    flaps,
    heartbeat_gaps,
    integrity,
    route,
)


@dataclass(frozen=True)
class Asked:
    history: History
    window: Window
    thresholds: Thresholds
    complete_until_ms: int

    @property
    def before(self) -> Instant:
        """Everything before the window."""
        return Instant(ms=self.window.start_ms - 1)

    @property
    def end(self) -> Instant:
        """Everything before the window's end."""
        return Instant(ms=self.window.end_ms - 1)


@dataclass(frozen=True)
class Way:
    shape: StructType
    ask: Callable[[Asked], DataFrame]


_Usual = Callable[[History, Window, Thresholds], DataFrame]


def _usual(shape: StructType, ask: _Usual) -> Way:
    return Way(shape, lambda asked: ask(asked.history, asked.window, asked.thresholds))


def _capacity(asked: Asked) -> DataFrame:
    return capacity.by_cluster(asked.history, instants(asked.window), asked.thresholds)


def instants(window: Window) -> list[int]:
    """When the capacity is looked at."""
    if window.length_ms == 0:
        return []
    return sorted({*capacity.midnights(window), window.end_ms - 1})


WAYS: Final[dict[tuple[str, str], Way]] = {
    ("route", "topic"): Way(shapes.ROUTE, lambda asked: route.routes_at(asked.history, asked.end)),
    ("route-diff", "topic"): Way(
        shapes.ROUTE_DIFF, lambda asked: diff.route_diff(asked.history, asked.before, asked.end)
    ),
    ("availability", "cluster"): _usual(shapes.AVAILABILITY_BY_CLUSTER, availability.by_cluster),
    ("availability", "group"): _usual(shapes.AVAILABILITY_BY_GROUP, availability.by_group),
    ("availability", "seat"): _usual(shapes.AVAILABILITY_BY_SEAT, availability.by_seat),
    ("failures", "cluster"): _usual(shapes.FAILURES, failures.by_cluster),
    ("failures", "seat"): _usual(shapes.FAILURES, failures.by_seat),
    ("flaps", "seat"): _usual(shapes.FLAPS, flaps.by_seat),
    ("heartbeat-gaps", "cluster"): _usual(shapes.HEARTBEAT_GAPS, heartbeat_gaps.by_cluster),
    ("heartbeat-gaps", "seat"): _usual(shapes.HEARTBEAT_GAPS, heartbeat_gaps.by_seat),
    ("churn", "cluster"): _usual(shapes.CHURN, churn.by_cluster),
    ("capacity", "cluster"): Way(shapes.CAPACITY, _capacity),
    ("exposure", "cluster"): _usual(shapes.EXPOSURE_BY_CLUSTER, exposure.by_cluster),
    ("exposure", "group"): _usual(shapes.EXPOSURE_BY_GROUP, exposure.by_group),
    ("failovers", "each"): _usual(shapes.FAILOVERS, failovers.each),
    ("failovers", "group"): _usual(shapes.FAILOVERS_BY_GROUP, failovers.by_group),
    ("anomalies", "finding"): _usual(shapes.ANOMALIES, anomalies.anomalies),
    ("integrity", "era"): Way(
        shapes.INTEGRITY,
        lambda asked: integrity.by_era(asked.history, asked.window, asked.complete_until_ms),
    ),
}
