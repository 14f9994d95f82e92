"""What of a history do later questions still depend on? Whatever `reduce` leaves out, no answer may miss."""

import random
from collections.abc import Callable, Iterator
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
from tests.pipeline.random_histories import TROUBLED, random_history

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
    "capacity": lambda history, window: capacity.by_cluster(history, [window.start_ms, window.end_ms - 1]),
    "exposure": exposure.by_group,
    "failovers": failovers.each,
    "failovers by group": failovers.by_group,
    "anomalies": anomalies.anomalies,
    "integrity": lambda history, window: integrity.by_era(history, window, 0),
}
SOONEST = ("failovers",)
"""What the default lane asks; the others cost a minute."""


@pytest.fixture(scope="module")
def plainly(spark: SparkSession) -> Iterator[SparkSession]:
    """So few rows are answered sooner than code for them is made, or a plan adapted."""
    quicker = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
    usual = {name: str(spark.conf.get(name)) for name in quicker}
    for name, value in quicker.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in usual.items():
        spark.conf.set(name, value)


@dataclass(frozen=True)
class Parted:
    """A history whole, and with its beginning reduced. `window` begins behind that."""

    whole: History
    parted: History
    window: Window


def part(spark: SparkSession, folder: Path, seed: int) -> Parted:
    told = random_history(seed, clusters=CLUSTERS, steps=STEPS, troubles=TROUBLED)
    rng = random.Random(seed)
    # Time goes on between the two: a window behind A holds no entry of A.
    times = sorted({row["ms"] for row in told.changes})
    cut = rng.choice(times[len(times) // 4 : -len(times) // 4])
    earlier = [row for row in told.changes if row["ms"] <= cut]
    later = [row for row in told.changes if row["ms"] > cut]
    a, b = (_filed(spark, folder / name, rows, CHANGES) for name, rows in (("a", earlier), ("b", later)))
    pulses = _filed(spark, folder / "pulses", told.pulses, PULSES)
    reduced = _filed(spark, folder / "reduced", [row.asDict() for row in reduce(a).collect()], CHANGES)
    window = Window(cut + 1, rng.choice(times[-len(times) // 4 :]))
    return Parted(History(a.unionByName(b), pulses), History(reduced.unionByName(b), pulses), window)


def _filed(spark: SparkSession, folder: Path, rows: Rows, schema: StructType) -> DataFrame:
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
def parted(plainly: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Parted:
    return part(plainly, tmp_path_factory.mktemp("parted"), 1)


def test_what_is_reduced_in_parts_is_what_is_reduced_at_once(parted: Parted) -> None:
    at_once = places(reduce(parted.whole.changes))
    assert places(reduce(parted.parted.changes)) == at_once
    assert len(at_once) < parted.whole.changes.count() / 2


@pytest.mark.parametrize("name", SOONEST)
def test_an_answer_is_the_same_from_what_is_left(name: str, parted: Parted) -> None:
    ask = QUESTIONS[name]
    assert answer(ask(parted.parted, parted.window)) == answer(ask(parted.whole, parted.window))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_every_answer_is_the_same_from_what_is_left(seed: int, plainly: SparkSession, tmp_path: Path) -> None:
    parted = part(plainly, tmp_path, seed)
    assert places(reduce(parted.parted.changes)) == places(reduce(parted.whole.changes))
    different = {}
    for name, ask in QUESTIONS.items():
        left, whole = answer(ask(parted.parted, parted.window)), answer(ask(parted.whole, parted.window))
        if left != whole:
            different[name] = set(left) ^ set(whole)
    assert different == {}
