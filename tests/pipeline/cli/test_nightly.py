"""The nightly report is about the day that is over, whatever changes arrive while it runs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.cli.nightly import TRIES, ingest_past_midnight
from routebook_pipeline.cli.options import STORE_VARIABLE, CommonOptions
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.history import HOUR_MS
from routebook_pipeline.lake.feeds import Feed
from routebook_pipeline.lake.reading import complete_until
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake
from routebook_pipeline.source.stream import CHANGES, EntryId
from tests.pipeline.cli.commands import seat_entry
from tests.pipeline.lake.logs import write_log
from tests.pipeline.source.streams import Stream

Ingest = Callable[[], int]


@pytest.fixture
def ingest(spark: SparkSession, stream: Stream, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """The first step of `nightly`."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lake = environment["ROUTEBOOK_LAKE"]
    common = CommonOptions(lake, stream.namespace, "", {}, STORE_VARIABLE, allow_partial=False, debug=False)
    return lambda: ingest_past_midnight(spark, common, Progress(), int(time.time() * 1000))


def add(stream: Stream, version: int, ms: int) -> None:
    stream.append([(EntryId(ms, version), seat_entry("broker-registered"))])


def test_a_namespace_without_history_is_reported(ingest: Ingest) -> None:
    """With exit code 1, because for an unreachable lake a CronJob would try again at once."""
    with pytest.raises(NegativeAnswerError, match=r"no history of the namespace '.*' yet") as raised:
        ingest()
    assert raised.value.exit_code == 1


def test_without_changes_the_lake_is_complete_until_the_last_ingest(
    ingest: Ingest, stream: Stream, lake: Lake, midnight_ms: int
) -> None:
    """This must be recorded: once a change follows, it cannot be found out any more."""
    last_ms = midnight_ms - HOUR_MS
    add(stream, 1, last_ms)
    write_log(lake.changes, ["2023-12-09"], changes=1, **{LAST_MS: last_ms, OBSERVED: last_ms + 5})
    started_ms = int(time.time() * 1000)
    assert ingest() == midnight_ms
    assert complete_until(lake, None) >= started_ms
    assert lake.changes.pin().stream_position == (last_ms, 1)


@pytest.fixture
def later_changes(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Times of changes, each of which is added while the one before is committed."""
    times_ms: list[int] = []
    commit: Any = Feed._commit

    def commit_and_add(self: Feed, batch: DataFrame, number: int) -> None:
        if times_ms and self.stream == CHANGES:
            held = self.table.pin().position
            add(stream, held.version + 2 if held else 2, times_ms.pop(0))
        commit(self, batch, number)

    monkeypatch.setattr(Feed, "_commit", commit_and_add)
    yield times_ms
    assert times_ms == []


@pytest.mark.slow
def test_changes_that_arrive_during_the_ingest_are_read_too(
    ingest: Ingest, stream: Stream, lake: Lake, midnight_ms: int, later_changes: list[int]
) -> None:
    add(stream, 1, midnight_ms - HOUR_MS)
    later_changes.append(int(time.time() * 1000))
    assert ingest() == midnight_ms
    held = lake.changes.pin().position
    assert held is not None
    assert held.version == 2


@pytest.mark.slow
def test_a_day_that_does_not_end_gives_no_report(
    ingest: Ingest, stream: Stream, midnight_ms: int, later_changes: list[int]
) -> None:
    """The clock was set back: later changes are still from yesterday."""
    add(stream, 1, midnight_ms - HOUR_MS)
    later_changes += [midnight_ms - HOUR_MS + number for number in range(1, TRIES + 1)]
    with pytest.raises(NegativeAnswerError, match=f"After {TRIES} ingests the history is complete until"):
        ingest()
