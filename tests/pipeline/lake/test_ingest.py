"""Ingest from the store into the lake, with real Spark queries."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import HistoryError, HistoryForkError, HistoryMissingError, UnreachableError
from routebook_pipeline.lake import feeds
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.feeds import FeedEvent
from routebook_pipeline.lake.ingest import ingest
from routebook_pipeline.lake.reading import complete_until
from routebook_pipeline.lake.rebase import rebase
from routebook_pipeline.lake.tables import Lake, Position
from tests.pipeline.lake.stores import Store
from tests.pipeline.lake.streams import START_MS, entries, frame, payload, versions

Once = Callable[..., list[FeedEvent]]
HOUR_MS = 3_600_000


@pytest.fixture
def empty_lake(tmp_path: Path, namespace_name: str) -> Lake:
    return Lake(str(tmp_path / "lake"), namespace_name)


@pytest.fixture
def once(spark: SparkSession, empty_lake: Lake) -> Once:
    def run(*, limit: int = 1000, on_loss: str = "fail", starting: str = "lake") -> list[FeedEvent]:
        events: list[FeedEvent] = []
        ingest(
            spark,
            empty_lake,
            once=True,
            on_event=events.append,
            stop=threading.Event(),
            on_loss=on_loss,
            starting=starting,
            options={"max_entries_per_trigger": str(limit)},
        )
        return events

    return run


def gaps(version: int) -> tuple[str, bytes]:
    seat = {"c": "c", "b": "b", "i": 0, "n": 1, "max": 30_000, "h": [[66, 1]]}
    entry = {"v": 1, "kind": "gaps", "worker": "w", "from_ms": 1, "to_ms": 2, "rows": [seat]}
    return f"{START_MS + version}-{version}", json.dumps(entry).encode()


def test_every_version_is_in_the_lake_once(spark: SparkSession, store: Store, empty_lake: Lake, once: Once) -> None:
    """One lake: several batches, a lost checkpoint, an old one, a trimmed stream, another history."""
    table = empty_lake.changes
    checkpoint = Path(empty_lake.checkpoints("changes").uri)
    store.add(entries(1, 25))
    store.add([gaps(1), gaps(2)], stream="pulse")

    events = once(limit=10)
    assert [(each.stream, each.committed and each.committed.last) for each in events] == [
        ("changes", 10),
        ("changes", 20),
        ("changes", 25),
        ("pulse", 2),
    ]
    assert store.reader_position("pipeline") == 25
    # Only the last batch was at the end of the stream, so only it has the time of the store clock.
    clocks = {row.version: row.ingested_ms for row in table.pin().read(spark).where("row = 0").collect()}
    assert clocks[10] == START_MS + 10_000
    assert clocks[25] > START_MS + 25_000
    assert empty_lake.pulses.pin().read(spark).count() == 2
    assert len(table.pin().files) == 3, "a small batch is not split, since each partition would be a small file"
    shutil.copytree(checkpoint, checkpoint.with_name("kept"))

    assert once() == [], "a query was started although nothing is new"

    shutil.rmtree(checkpoint)
    store.add(entries(26, 30))
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.first, progress.committed.last) == (26, 30)

    shutil.rmtree(checkpoint)
    shutil.copytree(checkpoint.with_name("kept"), checkpoint)
    store.add(entries(31, 33))
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.first, progress.committed.last) == (31, 33)
    assert len(list(checkpoint.iterdir())) == 1, "an ended checkpoint was not removed"

    store.add(entries(34, 40))
    store.trim_below(f"{START_MS + 37_000}-37")
    with pytest.raises(HistoryMissingError) as missing:
        once()
    assert (missing.value.first, missing.value.last) == (34, 36)
    assert store.reader_position("pipeline") == 33
    (progress,) = once(on_loss="record")
    assert progress.committed is not None
    assert (progress.committed.entries, progress.committed.holes) == (4, 3)
    assert versions(spark, table) == [*((n, n) for n in range(1, 34)), (34, 36), *((n, n) for n in range(37, 41))]

    # The last entries are lost. Their number and the time of the last one are known: that is no fork, and nothing new.
    store.add(entries(41, 43))
    store.delete(*entries(42, 43))
    (progress,) = once(on_loss="record")
    assert progress.committed is not None
    assert (progress.committed.last, progress.committed.entries, progress.committed.holes) == (43, 1, 2)
    shutil.rmtree(checkpoint)
    assert once() == []
    newest = store.newest()
    assert complete_until(empty_lake, newest) == newest.now_ms

    # The store lost its last changes and went beyond our position: the same versions, at other times.
    store.changes.drop()
    store.add([(f"{START_MS + 90_000 + n}-{n}", b"{}") for n in range(1, 48)])
    with pytest.raises(HistoryForkError):
        once()
    assert store.reader_position("pipeline") == 43


@pytest.mark.slow
def test_a_stream_that_was_empty_at_first_is_read_later(store: Store, empty_lake: Lake, once: Once) -> None:
    once()
    store.add(entries(1, 5))
    once()
    store.add([gaps(1)], stream="pulse")
    once()
    held = [table.pin().position for table in (empty_lake.changes, empty_lake.pulses)]
    assert [position and position.version for position in held] == [5, 1]


@pytest.mark.slow
def test_starting_at_the_end_of_the_stream_happens_only_once(
    spark: SparkSession, store: Store, empty_lake: Lake, once: Once
) -> None:
    store.add(entries(1, 5))
    once(starting="latest")
    shutil.rmtree(empty_lake.checkpoints("changes").uri)
    store.add(entries(6, 7))
    (progress,) = once(starting="latest")
    assert progress.committed is not None
    assert (progress.committed.first, progress.committed.last) == (6, 7)


@pytest.mark.slow
def test_a_checkpoint_ahead_of_the_lake_is_refused(store: Store, empty_lake: Lake, once: Once) -> None:
    store.add(entries(1, 3))
    once()
    kept = Path(empty_lake.changes.folder.uri)
    shutil.copytree(kept, kept.with_name("backup"))
    store.add(entries(4, 6))
    once()
    shutil.rmtree(kept)
    kept.with_name("backup").rename(kept)
    store.add(entries(7, 9))
    with pytest.raises(HistoryError, match=r"up to version 3.*checkpoints"):
        once()
    shutil.rmtree(empty_lake.checkpoints("changes").uri)
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.first, progress.committed.last) == (4, 9)

    shutil.rmtree(kept)
    with pytest.raises(HistoryError, match=r"up to version 0, but a checkpoint says that everything up to 9"):
        once()


@pytest.mark.slow
def test_no_query_continues_from_an_old_checkpoint(
    spark: SparkSession, store: Store, empty_lake: Lake, once: Once, tmp_path: Path
) -> None:
    checkpoint, kept = Path(empty_lake.checkpoints("changes").uri), tmp_path / "kept"

    def restore_checkpoint() -> None:
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(kept, checkpoint)

    store.add(entries(1, 5))
    once()
    shutil.copytree(checkpoint, kept)
    store.add(entries(6, 10))
    once()

    # The entries after the old checkpoint are in the lake, and trimmed from the stream.
    restore_checkpoint()
    store.trim_below(f"{START_MS + 9_000}-9")
    store.add(entries(11, 12))
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.first, progress.committed.last) == (11, 12)

    # The old checkpoint's position is in both histories, but the lake's is not.
    restore_checkpoint()
    store.changes.drop()
    store.add([*entries(1, 7), *((f"{START_MS + 90_000 + n}-{n}", payload(n)) for n in range(8, 21))])
    with pytest.raises(HistoryForkError) as forked:
        once()
    assert (forked.value.ours, forked.value.newest) == (12, 20)

    # And with an old checkpoint of an era that ended.
    rebase(spark, empty_lake)
    restore_checkpoint()
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.era, progress.committed.first, progress.committed.last) == (1, 1, 20)


def test_a_new_history_that_has_outgrown_the_lake_is_a_fork_and_no_hole(
    spark: SparkSession, store: Store, empty_lake: Lake, once: Once
) -> None:
    """Judging by versions and times alone, the versions 6 to 8 were trimmed before they were read."""
    store.name_history("first")
    store.add(entries(1, 5))
    once()
    store.name_history("renamed by a failover that lost nothing of ours")
    store.add(entries(6, 6))
    once()
    store.changes.drop()
    store.name_history("second")
    store.add((f"{START_MS + 90_000 + n}-{n}", payload(n)) for n in range(9, 21))
    for on_loss in ("fail", "record"):
        with pytest.raises(HistoryForkError) as forked:
            once(on_loss=on_loss)
        assert (forked.value.ours, forked.value.newest) == (6, 20)
    (rebased,) = rebase(spark, empty_lake)
    assert (rebased.old_version, rebased.first_version) == (6, 9)
    (progress,) = once()
    assert progress.committed is not None
    assert (progress.committed.era, progress.committed.first, progress.committed.last) == (1, 9, 20)


@pytest.mark.slow
def test_a_reader_behind_the_lake_detects_a_fork_too(spark: SparkSession, store: Store, empty_lake: Lake) -> None:
    """Of two readers, the other one is further. The store loses changes after the position of this one."""
    store.add(entries(1, 12))
    events, stop = list[FeedEvent](), threading.Event()

    def on_event(event: FeedEvent) -> None:
        if event.stream != "changes":
            return
        events.append(event)
        if len(events) == 1:
            assert commit(frame(spark, entries(6, 12)), empty_lake.changes, ingested_ms=5) is not None
            store.changes.drop()
            store.add([*entries(1, 7), *((f"{START_MS + 90_000 + n}-{n}", payload(n)) for n in range(8, 31))])
        elif event.committed is not None:
            stop.set()

    with pytest.raises(HistoryForkError) as forked:
        ingest(
            spark,
            empty_lake,
            once=False,
            on_event=on_event,
            stop=stop,
            trigger_s=0.1,
            options={"max_entries_per_trigger": "5"},
        )
    assert (forked.value.ours, forked.value.newest) == (12, 30)
    assert empty_lake.changes.pin().position == Position(0, 12)


def test_an_unreachable_store_is_named(empty_lake: Lake, once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTEBOOK_REDIS_URL", "redis://127.0.0.1:1")
    with pytest.raises(UnreachableError, match="store"):
        once()


@pytest.mark.slow
def test_a_continuous_ingest_restarts_and_stops_after_its_batch(
    spark: SparkSession, store: Store, empty_lake: Lake
) -> None:
    """The stream cannot be read at first; then a batch is committed, and the ingest is stopped."""
    stop, events = threading.Event(), list[FeedEvent]()
    client, key = store.changes.client, store.changes.key
    client.execute_command("SET", key, "no stream")

    def on_event(event: FeedEvent) -> None:
        events.append(event)
        if event.committed is not None or len(events) > 3:
            stop.set()
        elif event.stream == "changes":
            client.delete(key)
            store.add(entries(1, 3))

    ingest(spark, empty_lake, once=False, on_event=on_event, stop=stop, trigger_s=0.1)
    assert "restarting in 1 s: RB_UNREACHABLE" in events[0].text
    assert [each.committed.last for each in events if each.committed is not None] == [3]
    assert versions(spark, empty_lake.changes) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.slow
def test_files_are_joined_regularly_and_a_failure_does_not_stop_the_ingest(
    store: Store, empty_lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of twenty hours: the second one closes a day, whose files are joined, and the third one the next day, of
    which a file is missing.
    """
    monkeypatch.setattr(feeds, "COMMITS_BETWEEN_COMPACTIONS", 2)
    store.add(entries(1, 40, step_ms=2 * HOUR_MS))
    stop, joined = threading.Event(), list[str]()
    table = empty_lake.changes

    def on_event(event: FeedEvent) -> None:
        if "closed days" in event.text:
            joined.append(event.text)
            missing = next(file for file in table.pin().files if file.day == "2023-12-10")
            Path(table.folder.uri, missing.path).unlink(missing_ok=True)
        if len(joined) > 1 or "restarting" in event.text:
            stop.set()

    limit = {"max_entries_per_trigger": "10"}
    ingest(spark, empty_lake, once=False, on_event=on_event, stop=stop, trigger_s=0.1, options=limit)
    assert joined[0] == "2 files of closed days joined into 1"
    assert "were not joined: A file of the table is missing" in joined[1]
    assert table.pin().position == Position(0, 40)
