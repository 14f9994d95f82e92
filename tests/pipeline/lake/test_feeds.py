"""A feed without its batches: stopping, and checkpoints. Spark is not needed."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from routebook_pipeline.lake.feeds import CHECKPOINT_KEPT_MS, Checkpoint, Checkpoints, Feed, FeedOptions, StoppedError
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.stream import EntryId

KEY = "rb:{ns}:changes"


class QueryThatDeliversABatch:
    """Like a query of Spark: `stop` waits for its thread, which is just delivering a batch."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.errors: list[type[BaseException]] = []
        self.is_deadlocked = False

    def stop(self) -> None:
        thread = threading.Thread(target=self._deliver, daemon=True)
        thread.start()
        thread.join(10)
        self.is_deadlocked = thread.is_alive()

    def _deliver(self) -> None:
        nothing: Any = None
        try:
            self._feed._process(nothing, 0)
        except BaseException as error:
            self.errors.append(type(error))


def test_a_batch_that_arrives_while_a_feed_stops_is_refused(tmp_path: Path) -> None:
    options = FeedOptions({}, "fail", "lake", None, compacting=False)
    feed = Feed(Lake(str(tmp_path), "ns"), "changes", options, lambda _: None, threading.Event())
    query: Any = QueryThatDeliversABatch(feed)
    feed.query = query
    feed.stop()
    assert not query.is_deadlocked
    assert query.errors == [StoppedError]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(Folder(str(tmp_path / "checkpoints")), KEY)


def write_checkpoint(checkpoints: Checkpoints, *, planned: list[str], committed: int, era: int = 1) -> Path:
    """What Spark writes for a query: the end of each batch, and which batches are committed."""
    folder = Path(checkpoints.new(era).folder.uri)
    for name, texts in (
        ("offsets", ["v1\n{}\n" + json.dumps({KEY: end}) for end in planned]),
        ("commits", ["v1\n{}"] * committed),
    ):
        (folder / name).mkdir(parents=True)
        for batch, text in enumerate(texts):
            (folder / name / str(batch)).write_text(text)
            (folder / name / f".{batch}.crc").write_bytes(b"\0")
    return folder


def test_checkpoints_show_the_furthest_committed_position(checkpoints: Checkpoints) -> None:
    assert checkpoints.furthest(1) is None
    write_checkpoint(checkpoints, planned=[], committed=0)
    assert checkpoints.furthest(1) is None
    write_checkpoint(checkpoints, planned=["0-0"], committed=1)
    assert checkpoints.furthest(1) == EntryId(0, 0)
    write_checkpoint(checkpoints, planned=[f"{5 + number}-{number}" for number in range(1, 13)], committed=11)
    write_checkpoint(checkpoints, planned=["7-9", "9-99"], committed=1)
    write_checkpoint(checkpoints, planned=["8-80"], committed=1, era=0)
    assert checkpoints.furthest(1) == EntryId(16, 11), "the twelfth batch was not committed"


def test_old_checkpoints_are_removed(checkpoints: Checkpoints) -> None:
    left, running = (write_checkpoint(checkpoints, planned=["5-5"], committed=1) for _ in range(2))
    long_ago_s = time.time() - CHECKPOINT_KEPT_MS / 1000 - 60
    for file in left.rglob("*"):
        os.utime(file, (long_ago_s, long_ago_s))
    os.utime(running / "offsets" / "0", (long_ago_s, long_ago_s))
    checkpoints.remove_old()
    assert [folder.name for folder in left.parent.iterdir()] == [running.name]


def test_only_the_furthest_ended_checkpoint_is_kept(checkpoints: Checkpoints) -> None:
    """As with an ingest `--once` every minute, beside a running query."""
    folder = Path(checkpoints.folder.uri)
    running = write_checkpoint(checkpoints, planned=["3-3"], committed=1)
    for planned, committed in ((["7-7"], 1), (["8-8", "9-9"], 2), (["9-9"], 0), (["5-5"], 1)):
        left = write_checkpoint(checkpoints, planned=planned, committed=committed)
        before = checkpoints.furthest(1)
        checkpoints.close(Checkpoint(checkpoints.folder / left.name, KEY))
        assert checkpoints.furthest(1) == before
        assert len(list(folder.iterdir())) == 2
        assert running.exists(), "its query has not ended"
    assert checkpoints.furthest(1) == EntryId(9, 9)
    later = write_checkpoint(checkpoints, planned=["2-2"], committed=1, era=2)
    checkpoints.close(Checkpoint(checkpoints.folder / later.name, KEY))
    assert {entry.name for entry in folder.iterdir()} == {running.name, later.name}


def test_one_checkpoint_is_kept_when_two_queries_end_at_once(checkpoints: Checkpoints) -> None:
    """Both are marked as ended before either is cleaned up, and both are equally far."""
    for _ in range(2):
        (write_checkpoint(checkpoints, planned=["7-7"], committed=1) / "over").touch()
    for _ in range(2):
        checkpoints.remove_ended()
        assert len(checkpoints.folder.subfolders()) == 1
        assert checkpoints.furthest(1) == EntryId(7, 7)


def test_a_feed_stops_when_its_lake_is_unreachable(tmp_path: Path) -> None:
    options = FeedOptions({}, "fail", "lake", None, compacting=False)
    feed = Feed(Lake(str(tmp_path), "ns"), "changes", options, lambda _: None, threading.Event())
    (tmp_path / "ns").write_text("not a folder")
    feed._checkpoint = feed._checkpoints.new(0)
    feed.stop()


def test_files_beside_the_checkpoints_are_kept(checkpoints: Checkpoints) -> None:
    """From an older release, in which a stream had one checkpoint for all starts."""
    left = Path(checkpoints.folder.uri)
    (left / "commits").mkdir(parents=True)
    for name in ("metadata", ".metadata.crc", "commits/0"):
        (left / name).write_text("{}")
        os.utime(left / name, (1, 1))
    checkpoints.remove_old()
    assert sorted(entry.name for entry in left.iterdir()) == [".metadata.crc", "metadata"]
