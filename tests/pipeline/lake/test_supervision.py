"""When an endless ingest starts again, and when it gives up. The feed here only falls; Spark is not needed."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import (
    HistoryForkError,
    HistoryMissingError,
    PipelineError,
    UnreachableError,
    WrongUsageError,
)
from routebook_pipeline.lake.feeds import Feed, FeedOptions, Progress
from routebook_pipeline.lake.ingest import Supervised
from routebook_pipeline.lake.tables import Lake

HABITS = FeedOptions({}, "fail", "lake", None, compacting=False)


def spark_with(*, java: bool) -> Any:
    """As much of a session as is asked: whether its Java is there."""

    def stopped() -> bool:
        if not java:
            raise ConnectionRefusedError("nobody listens where Java was")
        return False

    return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped)))


class Falling(Feed):
    """Each start, or the query that it started, ends with the next error; None: it runs until it is told to fall."""

    def __init__(self, folder: Path, falls: Iterable[BaseException], announce: Callable[[Progress], None]) -> None:
        super().__init__(Lake(str(folder), "ns"), "changes", HABITS, announce, threading.Event())
        self._falls = iter(falls)
        self.later = False
        """Whether the query ends, or its start does."""
        self._ended_with: BaseException | None = None

    def start(self, spark: SparkSession, trigger_s: float | None) -> Any:
        error = next(self._falls)
        if not self.later:
            raise error
        self._ended_with = error
        query: Any = SimpleNamespace(isActive=False)
        self.query = query
        return query

    def failure(self) -> BaseException | None:
        return self._ended_with


class Ingesting:
    """A supervised feed, and a clock that goes on when it is told to."""

    def __init__(self, folder: Path, *falls: BaseException) -> None:
        self.told: list[str] = []
        self.now_s = 1000.0
        self.feed = Falling(folder, falls, lambda progress: self.told.append(progress.text))
        self.supervised = Supervised(self.feed, lambda progress: self.told.append(progress.text), lambda: self.now_s)

    def look(self, *, times: int = 1, java: bool = True) -> None:
        for _ in range(times):
            self.supervised.look(spark_with(java=java), 1.0)

    def pause(self) -> float:
        """Until it is started the next time: how long it was left alone, in half seconds."""
        began, falls = self.now_s, len(self.told)
        while len(self.told) == falls:
            self.now_s += 0.5
            self.look()
        return self.now_s - began


def test_each_pause_is_twice_the_one_before_up_to_a_minute(tmp_path: Path) -> None:
    ingesting = Ingesting(tmp_path, *[UnreachableError("nobody there")] * 20)
    ingesting.look()
    assert ingesting.told == ["starting again in 1 s: nobody there"]
    assert [ingesting.pause() for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert ingesting.told[-1] == "starting again in 60 s: nobody there"


def test_a_committed_batch_forgives(tmp_path: Path) -> None:
    ingesting = Ingesting(tmp_path, *[UnreachableError("nobody there")] * 20)
    ingesting.look()
    assert [ingesting.pause() for _ in range(3)] == [1, 2, 4]
    ingesting.feed.batches += 1
    assert [ingesting.pause() for _ in range(3)] == [8, 1, 2], "the pause that had begun, and then from the start"


@pytest.mark.parametrize("later", [False, True], ids=["at its start", "in a batch"])
@pytest.mark.parametrize(
    "error",
    [
        WrongUsageError("no such variable"),
        HistoryMissingError("ns", 3, 5),
        HistoryForkError("ns", 9, 4),
        RuntimeError(f"Traceback …\nroutebook_pipeline.errors.HistoryForkError: {HistoryForkError('ns', 9, 4)}\n at …"),
    ],
    ids=["usage", "missing", "fork", "fork, told by Spark"],
)
def test_what_somebody_has_to_decide_ends_it(tmp_path: Path, error: BaseException, *, later: bool) -> None:
    ingesting = Ingesting(tmp_path, error)
    ingesting.feed.later = later
    with pytest.raises(PipelineError) as raised:
        ingesting.look(times=2)
    assert raised.value.exit_code in (2, 4)
    assert ingesting.told == []


@pytest.mark.parametrize("later", [False, True], ids=["at its start", "in a batch"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnreachableError("the lake is away"), "the lake is away"),
        (OSError(5, "the disk is ill"), "[Errno 5] the disk is ill"),
        (RuntimeError("Job aborted.\n\tat org.apache.spark"), "Job aborted."),
        (ValueError(), "ValueError"),
    ],
    ids=["ours", "of the system", "of Spark", "without a word"],
)
def test_everything_else_is_started_again(tmp_path: Path, error: BaseException, said: str, *, later: bool) -> None:
    ingesting = Ingesting(tmp_path, error, error)
    ingesting.feed.later = later
    ingesting.look(times=2)
    assert ingesting.told == [f"starting again in 1 s: {said}"]


def test_without_java_nothing_is_started_again(tmp_path: Path) -> None:
    ingesting = Ingesting(tmp_path, ConnectionRefusedError("nobody listens where Java was"))
    with pytest.raises(ConnectionRefusedError):
        ingesting.look(java=False)
    assert ingesting.told == []
