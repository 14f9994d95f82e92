"""`reduce` only drops rows that no later question depends on."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from routebook_pipeline.history import History, Instant, Window
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.transforms import (
    anomalies,
    availability,
    capacity,
    churn,
    exposure,
    failovers,
    failures,
    integrity,
    routes,
)
from routebook_pipeline.transforms.snapshots import reduce
from tests.pipeline.random_histories import MANY_FAULTS, random_history

pytestmark = pytest.mark.slow

CLUSTERS, STEPS = 60, 1_500
Rows = list[dict[str, Any]]

QUESTIONS: dict[str, Callable[[History, Window], DataFrame]] = {
    "route_at": lambda history, window: routes.routes_at(history, Instant(ms=window.start_ms)),
    "availability by seat": availability.by_seat,
    "availability by group": availability.by_group,
    "failures": failures.by_seat,
    "flaps": failures.flaps_by_seat,
    "churn": churn.by_cluster,
    "capacity": lambda history, window: capacity.at_times(history, [window.start_ms, window.end_ms - 1]),
    "exposure": exposure.by_group,
    "failovers": failovers.each,
    "failovers by group": failovers.by_group,
    "anomalies": anomalies.anomalies,
    "integrity": lambda history, window: integrity.by_era(history, window, 0),
}
OFTEN = ("failovers",)
"""The questions in the default run; the others take a minute."""


@dataclass(frozen=True)
class Histories:
    """A whole history, and the same with its first part reduced. `window` begins after that part."""

    whole: History
    reduced: History
    window: Window


def make_histories(spark: SparkSession, folder: Path, seed: int) -> Histories:
    random_ = random_history(seed, clusters=CLUSTERS, steps=STEPS, fault_rates=MANY_FAULTS)
    rng = random.Random(seed)
    # The parts are cut between two milliseconds, so that a window after the first part has no entry of it.
    times = sorted({row["ms"] for row in random_.changes})
    cut = rng.choice(times[len(times) // 4 : -len(times) // 4])
    earlier = [row for row in random_.changes if row["ms"] <= cut]
    later = [row for row in random_.changes if row["ms"] > cut]
    parts = (("first", earlier), ("second", later))
    first, second = (_through_files(spark, folder / name, rows, CHANGES) for name, rows in parts)
    pulses = _through_files(spark, folder / "pulses", random_.pulses, PULSES)
    reduced = _through_files(spark, folder / "reduced", [row.asDict() for row in reduce(first).collect()], CHANGES)
    window = Window(cut + 1, rng.choice(times[-len(times) // 4 :]))
    whole = History(first.unionByName(second), pulses)
    return Histories(whole, History(reduced.unionByName(second), pulses), window)


def _through_files(spark: SparkSession, folder: Path, rows: Rows, schema: StructType) -> DataFrame:
    columns = schema.fieldNames()
    frame = spark.createDataFrame([tuple(row[column] for column in columns) for row in rows], schema)
    frame.coalesce(1).write.parquet(str(folder))
    return spark.read.schema(schema).parquet(str(folder))


def answer(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())


def places(changes: DataFrame) -> set[tuple[int, int]]:
    found = [(row.ord, row.row) for row in changes.select("ord", "row").collect()]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture(scope="module")
def histories(small_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return make_histories(small_spark, tmp_path_factory.mktemp("histories"), 1)


def test_reducing_in_two_steps_equals_reducing_at_once(histories: Histories) -> None:
    at_once = places(reduce(histories.whole.changes))
    assert places(reduce(histories.reduced.changes)) == at_once
    assert len(at_once) < histories.whole.changes.count() / 2


@pytest.mark.parametrize("name", OFTEN)
def test_an_answer_is_the_same_from_the_reduced_history(name: str, histories: Histories) -> None:
    compute = QUESTIONS[name]
    assert answer(compute(histories.reduced, histories.window)) == answer(compute(histories.whole, histories.window))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_every_answer_is_the_same_from_the_reduced_history(
    seed: int, small_spark: SparkSession, tmp_path: Path
) -> None:
    histories = make_histories(small_spark, tmp_path, seed)
    assert places(reduce(histories.reduced.changes)) == places(reduce(histories.whole.changes))
    different = {}
    for name, compute in QUESTIONS.items():
        found = answer(compute(histories.reduced, histories.window))
        expected = answer(compute(histories.whole, histories.window))
        if found != expected:
            different[name] = set(found) ^ set(expected)
    assert different == {}
