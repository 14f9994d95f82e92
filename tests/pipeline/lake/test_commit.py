"""Every version is committed exactly once, and stays."""

import itertools
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import WrongUsageError
from routebook_pipeline.lake.commit import CommittedBatch, DiscontinuityError, KillPoint, check_continuity, commit
from routebook_pipeline.lake.reading import complete_until
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.source.stream import EntryId, StreamEnd
from tests.pipeline.lake.streams import START_MS, ends_at, entries, frame, hole, paths, payload, versions

Add = Callable[..., CommittedBatch | None]


def test_every_version_is_in_the_table_once(spark: SparkSession, lake: Lake) -> None:
    """One history, batch by batch; each batch is one that a reader might deliver."""
    table = lake.changes

    def add(*rows: tuple[str, bytes], stream_end: StreamEnd | None = None) -> CommittedBatch | None:
        return commit(frame(spark, rows), table, ingested_ms=5, stream_end=stream_end)

    # The stream was trimmed before it was ever read: that is no hole, the history begins there.
    first = add(*entries(11, 20), stream_end=ends_at(20, START_MS + 60_000))
    assert first == CommittedBatch(0, 11, 20, entries=10, holes=0, unreadable=0, rows=10, observed_ms=START_MS + 60_000)
    assert table.pin().observed_ms == START_MS + 60_000

    # A reader that lost its checkpoint, or a second reader: nothing new.
    assert add(*entries(11, 20)) is None
    # A reader with an older checkpoint: known versions are dropped. The stream has grown meanwhile, so the batch is
    # complete only until its last entry.
    second = add(*entries(15, 25), stream_end=ends_at(30, START_MS + 90_000))
    assert second is not None
    assert (second.first, second.last, second.entries, second.observed_ms) == (21, 25, 5, START_MS + 25_000)

    # A hole that begins in known versions, then one entry, then an unreadable one.
    third = add(hole(22, 30), *entries(31, 31), (f"{START_MS}-32", b"{}"))
    assert third is not None
    assert (third.first, third.last, third.entries, third.holes, third.unreadable) == (26, 32, 2, 5, 1)

    before = paths(table)
    # The number of versions is as expected, but one is repeated and one is missing.
    with pytest.raises(DiscontinuityError, match="up to version 32"):
        add(*entries(33, 34), *entries(34, 34), *entries(36, 36))
    with pytest.raises(WrongUsageError, match="None of the 100 entries"):
        add(*((f"{START_MS}-{version}", b"x") for version in range(33, 133)))
    assert paths(table) == before, "files of failed attempts were not removed"

    pinned = table.pin()
    assert pinned.position == Position(0, 32)
    metadata = pinned.delta.history(1)[0]
    assert {name: metadata[name] for name in ("observed_ms", "entries", "holes", "unreadable")} == {
        "observed_ms": third.observed_ms,
        "entries": 2,
        "holes": 5,
        "unreadable": 1,
    }
    assert versions(spark, table) == [(n, n) for n in range(11, 26)] + [(26, 30), (31, 31), (32, 32)]


def test_a_batch_that_ends_with_a_loss_ends_at_the_lost_entry(spark: SparkSession, lake: Lake) -> None:
    """The lost entries are unknown, but the time of the last one is known."""
    table = lake.changes

    def add(*rows: tuple[str, bytes], stream_end: StreamEnd, end: EntryId) -> CommittedBatch | None:
        return commit(frame(spark, rows), table, ingested_ms=5, stream_end=stream_end, end=end)

    last = EntryId(START_MS + 94_000, 15)
    done = add(*entries(1, 10), hole(11, 15), stream_end=ends_at(15, START_MS + 95_000), end=last)
    assert done is not None
    assert (done.first, done.last, done.entries, done.holes) == (1, 15, 10, 5)
    assert table.pin().stream_position == last
    assert done.observed_ms == START_MS + 95_000
    newest = StreamEnd(last, START_MS + 99_000)
    assert complete_until(lake, newest) == START_MS + 99_000

    # The stream grew while this batch was read: it is complete until its end, although its last entry is lost.
    end = EntryId(START_MS + 97_000, 16)
    done = add(hole(16, 16), stream_end=ends_at(40, START_MS + 99_000), end=end)
    assert done is not None
    assert (table.pin().stream_position, done.observed_ms) == (end, START_MS + 97_000)


def test_a_batch_of_a_newer_format_is_kept(spark: SparkSession, lake: Lake) -> None:
    """After an upgrade of the service, no entry is readable until `--reparse` of a newer release."""
    newer = [(f"{START_MS + version}-{version}", payload(version, v=2)) for version in range(1, 121)]
    done = commit(frame(spark, newer), lake.changes, ingested_ms=5)
    assert done is not None
    assert (done.entries, done.unreadable) == (120, 120)
    kept = lake.changes.pin().read(spark).where("code = 99 AND cause = 'newer' AND raw IS NOT NULL")
    assert kept.count() == 120


def test_a_writer_that_loses_a_race_commits_only_the_rest(spark: SparkSession, lake: Lake) -> None:
    table = lake.changes
    other_batches = itertools.chain([entries(1, 4)], itertools.repeat(None))

    def commit_other(point: KillPoint) -> None:
        """Another writer, which commits just before us."""
        rows = next(other_batches) if point is KillPoint.FILES_WRITTEN else None
        if rows is not None:
            assert commit(frame(spark, rows), table, ingested_ms=5) is not None

    done = commit(frame(spark, entries(1, 6)), table, ingested_ms=5, reached=commit_other)
    assert done is not None
    assert (done.first, done.last) == (5, 6)
    assert versions(spark, table) == [(n, n) for n in range(1, 7)]
    assert {file.path for file in table.pin().files} == paths(table)


def test_the_log_has_statistics_of_each_file(spark: SparkSession, lake: Lake) -> None:
    table = lake.changes
    hour = 3_600_000
    rows = [*entries(1, 30, step_ms=hour), (f"{START_MS + 31 * hour}-31", b"")]
    commit(frame(spark, rows).coalesce(1), table, ingested_ms=5)
    assert [
        (file.day, file.rows, file.first_ord, file.last_ord, file.first_ms, file.last_ms, file.readable_rows)
        for file in table.pin().files
    ] == [
        ("2023-12-09", 23, 1, 23, START_MS + hour, START_MS + 23 * hour, 23),
        ("2023-12-10", 8, 24, 31, START_MS + 24 * hour, START_MS + 31 * hour, 7),
    ]


@pytest.mark.parametrize(
    ("held", "first", "last", "entries", "holes", "twice_the_sum"),
    [
        (None, 11, 20, 9, 0, 290),
        (None, 11, 20, 9, 1, 291),
        (32, 34, 40, 7, 0, 518),
        (32, 33, 40, 7, 0, 512),
        (32, 33, 40, 8, 1, 584),
        (32, 33, 35, 3, 0, 203),
    ],
)
def test_a_batch_that_does_not_continue_the_table_is_refused(
    held: int | None, first: int, last: int, entries: int, holes: int, twice_the_sum: int
) -> None:
    counts = {"first": first, "last": last, "entries": entries, "holes": holes, "twice_the_sum": twice_the_sum}
    with pytest.raises(DiscontinuityError):
        check_continuity("changes", None if held is None else Position(0, held), counts)
