"""The night's page is of the day that is over, whatever comes while it is made."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from routebook_pipeline.cli.nightly import TRIES, read_past_midnight
from routebook_pipeline.cli.options import STORE_VARIABLE, Site
from routebook_pipeline.cli.progress import Progress
from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.history import HOUR_MS
from routebook_pipeline.lake.feeds import Feed
from routebook_pipeline.lake.reading import complete_until
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake
from routebook_pipeline.source.stream import CHANGES, EntryId
from tests.pipeline.cli.operator import told
from tests.pipeline.lake.logs import write_log
from tests.pipeline.source.streams import Stream

Read = Callable[[], int]


@pytest.fixture
def read(spark: SparkSession, stream: Stream, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Read:
    """What the night begins with."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lake = environment["ROUTEBOOK_LAKE"]
    site = Site(lake, stream.namespace, "", {}, STORE_VARIABLE, allow_partial=False, debug=False)
    return lambda: read_past_midnight(spark, site, Progress(), int(time.time() * 1000))


def add(stream: Stream, version: int, ms: int) -> None:
    stream.append([(EntryId(ms, version), told("broker-registered"))])


def test_a_name_space_without_history_says_so(read: Read) -> None:
    """Not that the lake cannot be reached: a CronJob would try again at once."""
    with pytest.raises(NegativeAnswerError, match=r"no history of the namespace '.*' yet") as said:
        read()
    assert said.value.exit_code == 1


def test_a_quiet_fleet_is_complete_until_the_last_look(
    read: Read, stream: Stream, lake: Lake, midnight_ms: int
) -> None:
    """Also when something comes right behind: nobody could tell any more."""
    last_ms = midnight_ms - HOUR_MS
    add(stream, 1, last_ms)
    write_log(lake.changes, ["2023-12-09"], changes=1, **{LAST_MS: last_ms, OBSERVED: last_ms + 5})
    began_ms = int(time.time() * 1000)
    assert read() == midnight_ms
    assert complete_until(lake, None) >= began_ms
    assert lake.changes.pin().stream_position == (last_ms, 1)


@pytest.fixture
def following(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Times at which a change comes, each while the one before is committed."""
    times_ms: list[int] = []
    commit: Any = Feed._commit

    def followed(self: Feed, batch: DataFrame, number: int) -> None:
        if times_ms and self.stream == CHANGES:
            held = self.table.pin().position
            add(stream, held.version + 2 if held else 2, times_ms.pop(0))
        commit(self, batch, number)

    monkeypatch.setattr(Feed, "_commit", followed)
    yield times_ms
    assert times_ms == []


@pytest.mark.slow
def test_what_follows_while_it_reads_is_read_too(
    read: Read, stream: Stream, lake: Lake, midnight_ms: int, following: list[int]
) -> None:
    add(stream, 1, midnight_ms - HOUR_MS)
    following.append(int(time.time() * 1000))
    assert read() == midnight_ms
    held = lake.changes.pin().position
    assert held is not None
    assert held.version == 2


@pytest.mark.slow
def test_a_day_that_does_not_end_makes_no_page(
    read: Read, stream: Stream, midnight_ms: int, following: list[int]
) -> None:
    """A clock that was set back: what follows is still of yesterday."""
    add(stream, 1, midnight_ms - HOUR_MS)
    following += [midnight_ms - HOUR_MS + number for number in range(1, TRIES + 1)]
    with pytest.raises(NegativeAnswerError, match=f"complete until .* after {TRIES} readings"):
        read()
