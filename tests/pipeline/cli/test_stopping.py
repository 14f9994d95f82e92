"""Stopping `ingest`, with and without `--once`: in order at the first signal, at once at the second."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from routebook_pipeline.answers.daily import STORED_ANSWERS
from routebook_pipeline.history import MINUTE_MS
from routebook_pipeline.lake.tables import Lake, all_records
from routebook_pipeline.source.stream import EntryId
from routebook_pipeline.times import day_of
from tests.pipeline.cli.commands import ENTRIES, LIGHT, BackgroundCommand, Entry, seat_entry, two_days
from tests.pipeline.source.streams import BEGAN_MS, Stream
from tests.support.fault_proxy import FaultProxy

pytestmark = pytest.mark.slow
LARGE_BATCH = 200_000
"""A batch that takes some seconds."""
SEATS = next(stored for stored in STORED_ANSWERS if stored.name == "availability-by-seat")


def changes(first: int, last: int) -> list[Entry]:
    return [(EntryId(BEGAN_MS + version, version), seat_entry("broker-changed")) for version in range(first, last + 1)]


def held_version(lake: Lake) -> int:
    position = lake.changes.pin().position
    return 0 if position is None else position.version


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_once_ends_after_the_running_batch_and_continues_there(
    stream: Stream, environment: dict[str, str], lake: Lake, tmp_path: Path, number: signal.Signals
) -> None:
    stream.append(changes(1, 4_000))
    small_batches = ("ingest", "--once", "--max-entries", "50", *LIGHT)
    with BackgroundCommand(environment, tmp_path / "says.txt", *small_batches) as ingest:
        ingest.wait_for_output("50 entries, up to version 50")
        ingest.send_signal(number)
        assert ingest.end() == 0, ingest.output
        assert f"{number.name}: ending after the running batch" in ingest.output
        assert "Error" not in ingest.output
    reached = held_version(lake)
    assert 50 <= reached < 4_000
    assert reached % 50 == 0, "a batch was committed in part"
    assert sum(file.rows for file in lake.changes.pin().files) == reached
    with BackgroundCommand(environment, tmp_path / "again.txt", "ingest", "--once", *LIGHT) as ingest:
        assert ingest.end(within_s=200) == 0, ingest.output
    assert held_version(lake) == 4_000


async def test_a_store_that_hangs_does_not_prevent_stopping(
    stream: Stream, environment: dict[str, str], lake: Lake, store_url: str, tmp_path: Path
) -> None:
    stream.append(changes(1, 4_000))
    async with FaultProxy.before(store_url) as proxy:
        behind_proxy = {**environment, "ROUTEBOOK_REDIS_URL": proxy.url}
        small_batches = ("ingest", "--trigger", "1s", "--max-entries", "50", *LIGHT)
        with BackgroundCommand(behind_proxy, tmp_path / "says.txt", *small_batches) as ingest:
            await asyncio.to_thread(ingest.wait_for_output, "50 entries, up to version 50")
            proxy.stall()
            ingest.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(ingest.end) == 0, ingest.output
    assert held_version(lake) % 50 == 0


def test_a_second_signal_does_not_wait_for_the_running_batch(
    stream: Stream, environment: dict[str, str], lake: Lake, tmp_path: Path
) -> None:
    """Nothing is lost: the batch is read again by the next ingest."""
    stream.append(changes(1, LARGE_BATCH))
    with BackgroundCommand(environment, tmp_path / "says.txt", "ingest", "--once", *LIGHT) as ingest:
        ingest.wait_until((lake.changes.folder / "data").files)
        ingest.send_signal(signal.SIGTERM)
        ingest.wait_for_output("SIGTERM: ending after the running batch")
        ingest.send_signal(signal.SIGTERM)
        assert ingest.end() == 130, ingest.output
    assert held_version(lake) == 0
    with BackgroundCommand(environment, tmp_path / "again.txt", "ingest", "--once", *LIGHT) as ingest:
        assert ingest.end(within_s=200) == 0, ingest.output
    assert (held_version(lake), sum(file.rows for file in lake.changes.pin().files)) == (LARGE_BATCH, LARGE_BATCH)


def test_the_stored_answers_of_the_open_day_are_refreshed(
    stream: Stream, environment: dict[str, str], lake: Lake, midnight_ms: int, tmp_path: Path
) -> None:
    """They include changes that arrived since the last refresh."""
    stream.append(two_days(midnight_ms))
    arguments = ("ingest", "--trigger", "1s", "--refresh", "1s", "--threshold", "objective=0.9", *LIGHT)
    today = day_of(midnight_ms)

    def recorded() -> dict[str, int]:
        table = SEATS.table(lake)
        return all_records(table.pin()) if table.exists() else {}

    with BackgroundCommand(environment, tmp_path / "says.txt", *arguments) as ingest:
        ingest.wait_for_output(f"up to version {ENTRIES}")
        ingest.wait_until(lambda: f"{SEATS.name}/{today}" in recorded())
        first = recorded()
        assert first[f"{SEATS.name}/{today}"] == ENTRIES

        newest_ms = first[f"{SEATS.name}/{today}/until"]
        stream.append([(EntryId(newest_ms + MINUTE_MS, ENTRIES + 1), seat_entry("broker-registered", id=1))])
        ingest.wait_for_output(f"up to version {ENTRIES + 1}")
        ingest.wait_until(lambda: recorded()[f"{SEATS.name}/{today}"] == ENTRIES + 1)
        again = recorded()
        assert again[f"{SEATS.name}/{today}/until"] > newest_ms
        assert again[f"{SEATS.name}/{today}/thresholds"] == first[f"{SEATS.name}/{today}/thresholds"]
        ingest.send_signal(signal.SIGTERM)
        assert ingest.end() == 0, ingest.output
    assert "stored answers refreshed" in ingest.output
    assert [file.day for file in SEATS.table(lake).pin().files].count(today) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_java_starts_leaves_no_java(
    stream: Stream, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    stream.append(changes(1, 1))
    with BackgroundCommand(environment, tmp_path / "says.txt", "ingest", "--once", *LIGHT) as ingest:
        ingest.wait_until(lambda: java_of(ingest.pid))
        started = java_of(ingest.pid)
        ingest.send_signal(number)
        assert ingest.end() in (128 + number, -number), ingest.output
        _, left = psutil.wait_procs(started, timeout=20)
    assert not left


def java_of(pid: int) -> list[psutil.Process]:
    """Spark's JVM, which is this process's child; the one that builds its command line is not."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                found.append(child)
    return found
