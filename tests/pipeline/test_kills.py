"""An ingest that is killed at any point and started again puts every version into the lake exactly once."""

import random
import signal
import time
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.history import DAY_MS, History, Window
from routebook_pipeline.lake.commit import KILL_VARIABLE, KillPoint
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.stream import EntryId
from routebook_pipeline.transforms.integrity import by_era
from tests.pipeline.ingest_process import STARTED, Ingest, Producer
from tests.pipeline.lake.streams import START_MS, payload
from tests.pipeline.source.streams import Stream

pytestmark = pytest.mark.slow
KILLS = 20
BATCHES = 3
A_BATCH = 300
TURNS = 10


@pytest.fixture
def stream(store_url: str, namespace_name: str) -> Iterator[Stream]:
    with Stream(store_url, namespace_name) as opened:
        yield opened


def assert_complete(spark: SparkSession, lake: Lake, last: EntryId) -> None:
    rows = lake.changes.pin().read(spark)
    found = (
        rows.where("row = 0").agg(F.count("*"), F.count_distinct("version"), F.min("version"), F.max("version")).first()
    )
    assert tuple(found or ()) == (last.version, last.version, 1, last.version)
    history = History(rows, lake.pulses.pin().read(spark))
    (era,) = by_era(history, Window(0, last.ms + DAY_MS), last.ms).collect()
    assert era.ok, era
    assert (era.entries, era.missing, era.duplicates, era.unreadable) == (last.version, 0, 0, {})


def test_kills_at_random_moments_lose_and_double_nothing(
    spark: SparkSession, stream: Stream, store_url: str, tmp_path: Path
) -> None:
    chance = random.Random(20)
    lake = Lake(str(tmp_path / "lake"), stream.namespace)
    logs = (tmp_path / f"ingest-{number}.log" for number in count())

    def start(once: bool = False) -> Ingest:
        return Ingest(tmp_path / "lake", stream.namespace, store_url, next(logs), once=once)

    moments, committed = [], 0
    with Producer(stream) as producer:
        with start() as first:
            began = time.monotonic()
            first.wait_for_output(STARTED)
            ready = time.monotonic()
            first.wait_for_output("changes True", times=2)
            until_ready, until_committed = ready - began, time.monotonic() - ready
        for number in range(KILLS - 1):
            with start() as ingest:
                if number % 5 == 0:
                    moment = chance.uniform(0, until_ready)
                else:
                    ingest.wait_for_output(STARTED)
                    moment = chance.uniform(0, 1.5 * until_committed)
                ingest.let_run(moment)
                assert ingest.kill() == -signal.SIGKILL, ingest.output
                moments.append(round(moment, 2))
                committed += ingest.commits > 0
    with start(once=True) as ingest:
        assert ingest.end() == 0, ingest.output
    assert committed >= KILLS // 4, f"too few runs committed anything: {moments}"
    assert_complete(spark, lake, producer.last)


def test_two_concurrent_ingests_lose_and_double_nothing(
    spark: SparkSession, stream: Stream, store_url: str, tmp_path: Path
) -> None:
    """They start without a lake. Each skips the entries that the other has committed."""
    lake = Lake(str(tmp_path / "lake"), stream.namespace)
    logs = [tmp_path / f"ingest-{number}.log" for number in range(3)]

    def start(number: int, *, once: bool = False) -> Ingest:
        return Ingest(tmp_path / "lake", stream.namespace, store_url, logs[number], once=once)

    with Producer(stream) as producer, start(0) as one, start(1) as other:
        for ingest in (one, other):
            ingest.wait_for_output("changes", times=TURNS)
        for ingest in (one, other):
            ingest.wait_for_output("changes", times=ingest.output.count("changes") + TURNS)
        commits = (one.commits, other.commits)
    with start(2, once=True) as last:
        assert last.end() == 0, last.output
    assert sum(commits) >= TURNS
    assert min(commits) > 0, f"one of them never committed: {commits}"
    assert_complete(spark, lake, producer.last)


@pytest.mark.parametrize("point", KillPoint)
def test_kills_at_each_kill_point_lose_and_double_nothing(
    spark: SparkSession, stream: Stream, store_url: str, tmp_path: Path, point: KillPoint
) -> None:
    # Every start counts its batches from 0.
    expected = list(accumulate(batch if point is KillPoint.FILES_WRITTEN else batch + 1 for batch in range(BATCHES)))
    last = (expected[-1] + 1) * A_BATCH
    ids = stream.append((EntryId(START_MS + version, version), payload(version)) for version in range(1, last + 1))
    lake = Lake(str(tmp_path / "lake"), stream.namespace)
    options = {"max_entries_per_trigger": str(A_BATCH)}

    def run(name: str, **environment: str) -> int:
        log = tmp_path / f"ingest-{name}.log"
        with Ingest(
            tmp_path / "lake", stream.namespace, store_url, log, once=True, options=options, environment=environment
        ) as ingest:
            ended = ingest.end()
            assert ended in (0, -signal.SIGKILL), ingest.output
            return ended

    for batch in range(BATCHES):
        assert run(str(batch), **{KILL_VARIABLE: f"{point}:{batch}"}) == -signal.SIGKILL
        held = lake.changes.pin().position
        assert (held.version if held else 0) == expected[batch] * A_BATCH
    assert run("last") == 0
    assert_complete(spark, lake, ids[-1])
