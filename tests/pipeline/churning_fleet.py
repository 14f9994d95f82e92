"""A simulated fleet with real workers, ingested while it churns; some entries are trimmed before they are read."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis
from pyspark.sql import SparkSession

from routebook_pipeline.lake.feeds import FeedEvent
from routebook_pipeline.lake.ingest import ingest
from routebook_pipeline.lake.tables import Lake
from tests.runtime.running import Running
from tests.support.simulated import first_address
from tests.support.waiting import wait_until

EVENTS = {
    "crash": 9,
    "deploy": 11,
    "switch": 13,
    "silence": 25,
    "permission": 12,
    "flap": 40,
    "topics": 2,
}
"""Event -> mean seconds between two of them. There are enough groups for all events."""
TIMEOUT_MS = 12_000
UNREAD = 40
"""The number of unread entries that must exist before some of them are trimmed."""
READ_SECONDS = 240.0


@dataclass
class Churned:
    lake: Lake
    journal: Path
    answers: Path
    progress: list[FeedEvent]
    trimmed: int
    """The last version that was trimmed."""
    read: int
    """The last version that was read before that."""


class LiveIngest:
    """`ingest` without end in a thread; it can be stopped and started again."""

    def __init__(self, spark: SparkSession, lake: Lake, progress: list[FeedEvent]) -> None:
        self._spark, self._lake, self._progress = spark, lake, progress
        self.failed: list[BaseException] = []

    @contextmanager
    def running(self, on_loss: str = "fail") -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop, on_loss))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)
        assert not thread.is_alive()
        assert not self.failed, self.failed

    def _run(self, stop: threading.Event, on_loss: str) -> None:
        try:
            ingest(
                self._spark,
                self._lake,
                once=False,
                on_event=self._progress.append,
                stop=stop,
                trigger_s=2,
                on_loss=on_loss,
            )
        except BaseException as error:
            self.failed.append(error)

    def read(self) -> int:
        place = self._lake.changes.pin().position
        return place.version if place else 0


def _newest(store: redis.Redis, key: str) -> int:
    return _version(store.xinfo_stream(key)["last-generated-id"])


def _version(entry_id: bytes) -> int:
    return int(entry_id.rpartition(b"-")[2])


def churn(spark: SparkSession, store_url: str, namespace: str, folder: Path, seconds: float) -> Churned:
    os.environ["ROUTEBOOK_REDIS_URL"] = store_url  # the data source takes the store's address from a variable
    lake = Lake(str(folder / "lake"), namespace)
    lake.changes.create()
    journal, answers = folder / "journal", folder / "answers"
    progress: list[FeedEvent] = []
    live = LiveIngest(spark, lake, progress)
    key = f"rb:{{{namespace}}}:changes"
    flags = ("--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1")
    service = ("serve", *flags, "--connection-grace-ms", "500", "--hold-minimum", "1000")
    with (
        redis.Redis.from_url(store_url, protocol=2) as store,
        Running(*service, folder=folder) as one,
        Running(*service, folder=folder) as other,
        ExitStack() as until_the_end,
    ):
        # A first entry, so that the first query, which is slow, runs before the fleet starts.
        one.put("/v1/kv/tests/begun", {"value": "1"}).raise_for_status()
        with live.running():
            wait_until(lambda: live.read() > 0, "the first query has read something", timeout_s=READ_SECONDS)
            simulated = _simulation(one, other, journal, answers, seconds, folder)
            simulation = until_the_end.enter_context(simulated)
            _wait(simulation, 0.4 * seconds)
        read = live.read()
        # These entries are not read in time: all but the newest are trimmed. Then a baseline repairs the history.
        wait_until(lambda: _newest(store, key) > read + UNREAD, "more changes", timeout_s=READ_SECONDS)
        trimmed = _newest(store, key) - UNREAD // 2
        (kept,) = [entry_id for entry_id, _ in store.xrange(key) if _version(entry_id) == trimmed + 1]
        store.xtrim(key, minid=kept.decode(), approximate=False)
        with live.running(on_loss="record"):
            wait_until(lambda: live.read() > trimmed, "the query reads past the gap", timeout_s=READ_SECONDS)
            httpx.post(one.http + "/v1/changes/baseline", timeout=30, trust_env=False).raise_for_status()
            assert simulation.wait(seconds + 120) == 0
            # When workers stop, they write their remaining heartbeat gaps.
            other.stop()
            one.stop()
            wait_until(lambda: live.read() == _newest(store, key), "everything is read", timeout_s=READ_SECONDS)
    ingest(spark, lake, once=True, on_event=progress.append, stop=threading.Event())
    return Churned(lake, journal, answers, progress, trimmed, read)


@contextmanager
def _simulation(
    one: Running, other: Running, journal: Path, answers: Path, seconds: float, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "routebook", "simulate"),
        *("--name-servers", f"{one.remoting};{other.remoting}", "--first-address", first_address()),
        *("--brokers", "8", "--slaves", "1", "--clusters", "2", "--topics", "30", "--clients", "20", "--poll", "5s"),
        *("--period", "10s", "--timeout-ms", str(TIMEOUT_MS), "--seed", str(random.randrange(10**6))),
        *("--duration", f"{seconds:g}s", "--log", str(journal), "--answers", str(answers), "--url", one.http),
        *(part for name, every in EVENTS.items() for part in (f"--{name}-every", f"{every}s")),
    ]
    with (folder / "simulation").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Waits that long; the simulation must not end before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError("the simulation ended early")
