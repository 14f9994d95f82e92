"""When a continuous ingest restarts a query, and when it gives up. Its feed only fails here; Spark is not needed."""

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
from routebook_pipeline.lake.feeds import Feed, FeedEvent, FeedOptions
from routebook_pipeline.lake.ingest import SupervisedFeed
from routebook_pipeline.lake.tables import Lake

OPTIONS = FeedOptions({}, "fail", "lake", None, compacting=False)


def spark_with(*, java: bool) -> Any:
    """The part of a session that is used: whether its Java is running."""

    def get(name: str) -> str:
        if not java:
            raise ConnectionRefusedError("Java has ended")
        return name

    return SimpleNamespace(conf=SimpleNamespace(get=get))


class FailingFeed(Feed):
    """Each start, or the query that it started, fails with the next error."""

    def __init__(self, folder: Path, errors: Iterable[BaseException], on_event: Callable[[FeedEvent], None]) -> None:
        super().__init__(Lake(str(folder), "ns"), "changes", OPTIONS, on_event, threading.Event())
        self._errors = iter(errors)
        self.later = False
        """Whether the query fails, and not its start."""
        self._query_error: BaseException | None = None

    def start(self, spark: SparkSession, trigger_s: float | None) -> Any:
        error = next(self._errors)
        if not self.later:
            raise error
        self._query_error = error
        query: Any = SimpleNamespace(isActive=False)
        self.query = query
        return query

    def failure(self) -> BaseException | None:
        return self._query_error


class Supervision:
    """A supervised feed that fails, with a clock that the test advances."""

    def __init__(self, folder: Path, *errors: BaseException) -> None:
        self.events: list[str] = []
        self.now_s = 1000.0
        self.feed = FailingFeed(folder, errors, lambda event: self.events.append(event.text))
        self.supervised = SupervisedFeed(self.feed, lambda event: self.events.append(event.text), lambda: self.now_s)

    def check(self, *, times: int = 1, java: bool = True) -> None:
        for _ in range(times):
            self.supervised.check(spark_with(java=java), 1.0)

    def seconds_to_restart(self) -> float:
        """Advances the clock in half seconds until the feed is restarted, and fails again."""
        started_s, events = self.now_s, len(self.events)
        while len(self.events) == events:
            self.now_s += 0.5
            self.check()
        return self.now_s - started_s


def test_the_backoff_doubles_up_to_a_minute(tmp_path: Path) -> None:
    supervision = Supervision(tmp_path, *[UnreachableError("connection refused")] * 20)
    supervision.check()
    assert supervision.events == ["restarting in 1 s: connection refused"]
    assert [supervision.seconds_to_restart() for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert supervision.events[-1] == "restarting in 60 s: connection refused"


def test_a_committed_batch_resets_the_backoff(tmp_path: Path) -> None:
    supervision = Supervision(tmp_path, *[UnreachableError("connection refused")] * 20)
    supervision.check()
    assert [supervision.seconds_to_restart() for _ in range(3)] == [1, 2, 4]
    supervision.feed.batches += 1
    assert [supervision.seconds_to_restart() for _ in range(3)] == [8, 1, 2], "the running delay ends first"


@pytest.mark.parametrize("later", [False, True], ids=["at its start", "in a batch"])
@pytest.mark.parametrize(
    "error",
    [
        WrongUsageError("no such variable"),
        HistoryMissingError("ns", 3, 5),
        HistoryForkError("ns", 9, 4),
        RuntimeError(f"Traceback …\nroutebook_pipeline.errors.HistoryForkError: {HistoryForkError('ns', 9, 4)}\n at …"),
    ],
    ids=["usage", "missing", "fork", "fork, wrapped by Spark"],
)
def test_an_error_that_an_operator_must_resolve_ends_the_ingest(
    tmp_path: Path, error: BaseException, *, later: bool
) -> None:
    supervision = Supervision(tmp_path, error)
    supervision.feed.later = later
    with pytest.raises(PipelineError) as raised:
        supervision.check(times=2)
    assert raised.value.exit_code in (2, 4)
    assert supervision.events == []


@pytest.mark.parametrize("later", [False, True], ids=["at its start", "in a batch"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnreachableError("the lake is unreachable"), "the lake is unreachable"),
        (OSError(5, "input/output error"), "[Errno 5] input/output error"),
        (RuntimeError("Job aborted.\n\tat org.apache.spark"), "Job aborted."),
        (ValueError(), "ValueError"),
    ],
    ids=["ours", "of the operating system", "of Spark", "without a message"],
)
def test_after_any_other_error_the_query_is_restarted(
    tmp_path: Path, error: BaseException, reason: str, *, later: bool
) -> None:
    supervision = Supervision(tmp_path, error, error)
    supervision.feed.later = later
    supervision.check(times=2)
    assert supervision.events == [f"restarting in 1 s: {reason}"]


def test_without_java_nothing_is_restarted(tmp_path: Path) -> None:
    supervision = Supervision(tmp_path, ConnectionRefusedError("Java has ended"))
    with pytest.raises(ConnectionRefusedError):
        supervision.check(java=False)
    assert supervision.events == []
