"""What a feed does beside its batches. Spark is not needed."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from routebook_pipeline.lake.feeds import KEPT_MS, Checkpoint, Checkpoints, Feed, FeedOptions, StoppedError
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.stream import EntryId

KEY = "rb:{ns}:changes"


class QueryWithABatchOnItsWay:
    """As Spark's: to stop is to wait for its thread. That one hands over a batch just now."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.ended_with: list[type[BaseException]] = []
        self.waited_in_vain = False

    def stop(self) -> None:
        thread = threading.Thread(target=self._hand_over, daemon=True)
        thread.start()
        thread.join(10)
        self.waited_in_vain = thread.is_alive()

    def _hand_over(self) -> None:
        nothing: Any = None
        try:
            self._feed._take(nothing, 0)
        except BaseException as error:
            self.ended_with.append(type(error))


def test_a_batch_that_comes_while_a_feed_is_stopped_is_sent_back(tmp_path: Path) -> None:
    habits = FeedOptions({}, "fail", "lake", None, compacting=False)
    feed = Feed(Lake(str(tmp_path), "ns"), "changes", habits, lambda _: None, threading.Event())
    query: Any = QueryWithABatchOnItsWay(feed)
    feed.query = query
    feed.stop()
    assert not query.waited_in_vain, "each waits for the other"
    assert query.ended_with == [StoppedError]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(Folder(str(tmp_path / "checkpoints")), KEY)


def noted(checkpoints: Checkpoints, *, planned: list[str], committed: int, era: int = 1) -> Path:
    """What Spark leaves of a query: where each batch ends, and which of them are done."""
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


def test_checkpoints_say_how_far_any_query_came(checkpoints: Checkpoints) -> None:
    assert checkpoints.furthest(1) is None
    noted(checkpoints, planned=[], committed=0)
    assert checkpoints.furthest(1) is None
    noted(checkpoints, planned=["0-0"], committed=1)
    assert checkpoints.furthest(1) == EntryId(0, 0)
    noted(checkpoints, planned=[f"{5 + number}-{number}" for number in range(1, 13)], committed=11)
    noted(checkpoints, planned=["7-9", "9-99"], committed=1)
    noted(checkpoints, planned=["8-80"], committed=1, era=0)
    assert checkpoints.furthest(1) == EntryId(16, 11), "of the twelfth batch nobody knows"


def test_checkpoints_of_processes_that_ended_are_removed(checkpoints: Checkpoints) -> None:
    left, running = (noted(checkpoints, planned=["5-5"], committed=1) for _ in range(2))
    long_ago_s = time.time() - KEPT_MS / 1000 - 60
    for file in left.rglob("*"):
        os.utime(file, (long_ago_s, long_ago_s))
    os.utime(running / "offsets" / "0", (long_ago_s, long_ago_s))
    checkpoints.tidy()
    assert [folder.name for folder in left.parent.iterdir()] == [running.name]


def test_of_checkpoints_whose_queries_ended_the_furthest_is_kept(checkpoints: Checkpoints) -> None:
    """As of an ingest `--once` each minute, whoever reads beside it."""
    folder = Path(checkpoints.folder.uri)
    running = noted(checkpoints, planned=["3-3"], committed=1)
    for planned, committed in ((["7-7"], 1), (["8-8", "9-9"], 2), (["9-9"], 0), (["5-5"], 1)):
        left = noted(checkpoints, planned=planned, committed=committed)
        before = checkpoints.furthest(1)
        checkpoints.close(Checkpoint(checkpoints.folder / left.name, KEY))
        assert checkpoints.furthest(1) == before
        assert len(list(folder.iterdir())) == 2
        assert running.exists(), "it goes on"
    assert checkpoints.furthest(1) == EntryId(9, 9)
    later = noted(checkpoints, planned=["2-2"], committed=1, era=2)
    checkpoints.close(Checkpoint(checkpoints.folder / later.name, KEY))
    assert {entry.name for entry in folder.iterdir()} == {running.name, later.name}


def test_of_two_queries_that_end_at_once_one_checkpoint_stays(checkpoints: Checkpoints) -> None:
    """Both have said so before either looks, and both came as far."""
    for _ in range(2):
        (noted(checkpoints, planned=["7-7"], committed=1) / "over").touch()
    for _ in range(2):
        checkpoints.drop_ended()
        assert len(checkpoints.folder.folders()) == 1
        assert checkpoints.furthest(1) == EntryId(7, 7)


def test_a_lake_that_is_away_does_not_keep_a_feed_from_stopping(tmp_path: Path) -> None:
    habits = FeedOptions({}, "fail", "lake", None, compacting=False)
    feed = Feed(Lake(str(tmp_path), "ns"), "changes", habits, lambda _: None, threading.Event())
    (tmp_path / "ns").write_text("no folder")
    feed._checkpoint = feed._checkpoints.new(0)
    feed.stop()


def test_files_beside_the_checkpoints_are_left_alone(checkpoints: Checkpoints) -> None:
    """As Spark left them while a stream had one checkpoint, which all starts went on from."""
    left = Path(checkpoints.folder.uri)
    (left / "commits").mkdir(parents=True)
    for name in ("metadata", ".metadata.crc", "commits/0"):
        (left / name).write_text("{}")
        os.utime(left / name, (1, 1))
    checkpoints.tidy()
    assert sorted(entry.name for entry in left.iterdir()) == [".metadata.crc", "metadata"]
