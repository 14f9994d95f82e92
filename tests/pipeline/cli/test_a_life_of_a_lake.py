"""What an operator's cron job and an operator do with a lake, from the first night to a store that lost its data: each
step a command, in one process with one Java.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from routebook_pipeline.history import DAY_MS, HOUR_MS
from routebook_pipeline.source.positions import EntryId
from tests.pipeline.cli.shell import Ended, Shell
from tests.pipeline.source.streams import Stream

SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=1")
QUICK_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DAYS = 2
ENTRIES = DAYS * 24
PATIENCE_S = 240.0

Entry = tuple[EntryId, bytes]


def told(kind: str, **fields: object) -> bytes:
    seat = {"cluster": "c", "broker": "b", "id": 0, "addr": "127.0.0.1:10911"}
    return json.dumps({"v": 1, "kind": kind, **seat, **fields}).encode()


def two_days(midnight_ms: int) -> list[Entry]:
    """One entry an hour up to the last midnight: a broker that registers again and again, and once nobody's JSON."""

    def payload(version: int) -> bytes:
        if version == 1:
            return told("broker-registered", first=True)
        return b"{" if version == 7 else told("broker-changed")

    start_ms = midnight_ms - DAYS * DAY_MS - HOUR_MS
    return [(EntryId(start_ms + version * HOUR_MS, version), payload(version)) for version in range(1, ENTRIES + 1)]


class Pipeline:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def __call__(self, *arguments: str) -> Ended:
        return self._shell.pipeline(*arguments, *SMALL, "--conf", QUICK_START)

    def json(self, *arguments: str, code: int = 0) -> Any:
        ended = self(*arguments, "--json")
        assert ended.code == code, ended
        return json.loads(ended.out)


@pytest.fixture
def stream(store_url: str, namespace: str) -> Iterator[Stream]:
    with Stream(store_url, namespace) as stream:
        yield stream


@pytest.fixture
def environment(store_url: str, namespace: str, tmp_path: Path) -> dict[str, str]:
    return {
        "ROUTEBOOK_REDIS_URL": store_url,
        "ROUTEBOOK_LAKE": str(tmp_path / "lake"),
        "ROUTEBOOK_NAMESPACE": namespace,
    }


@pytest.fixture
def midnight_ms() -> int:
    """The last one. A test that runs across the next one is about a day more, and as true."""
    return int(time.time() * 1000) // DAY_MS * DAY_MS


@pytest.mark.slow
def test_a_life_of_a_lake(stream: Stream, environment: dict[str, str], midnight_ms: int, tmp_path: Path) -> None:
    entries = two_days(midnight_ms)
    stream.append(entries)
    with Shell(environment) as shell:
        pipeline = Pipeline(shell)
        a_night(pipeline, tmp_path)
        what_can_be_done_by_hand(pipeline, midnight_ms, tmp_path)
        from_exported_files(pipeline, entries, tmp_path)
        after_the_store_lost_its_data(pipeline, stream)


def a_night(pipeline: Pipeline, folder: Path) -> None:
    """One entry is unreadable: the report says so, and with `--fail` the exit code does."""
    asked = ("nightly", "--fail", "--days", str(DAYS), "--out", str(folder / "reports" / "%Y-%m-%d.html"))
    assert pipeline(*asked).code == 1
    (page,) = (folder / "reports").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.html", page.name)
    assert "<svg" in page.read_text()


def what_can_be_done_by_hand(pipeline: Pipeline, midnight_ms: int, folder: Path) -> None:
    assert pipeline.json("run", "snapshot") == {"days": []}, "the night has made them all"
    checked = pipeline.json("run", "check", code=1)
    assert checked["ok"] is False
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, 1)]
    assert pipeline.json("run", "compact")["joined"] >= 0
    assert pipeline.json("run", "vacuum")["deleted"] >= 0

    asked = ("run", "availability", "--by", "seat", *last_day(midnight_ms))
    before = pipeline.json(*asked)
    assert [(row["broker"], row["availability"]) for row in before["rows"]] == [("b", 1.0)]
    assert pipeline("backfill", "--reparse", "--again", *last_day(midnight_ms)).code == 0
    assert pipeline.json(*asked)["rows"] == before["rows"]

    page = folder / "by-hand" / "report.html"
    assert pipeline("report", *last_day(midnight_ms), "--out", str(page)).code == 0
    assert "<svg" in page.read_text()
    assert pipeline("report", "--out", str(folder)).code == 2, "a folder is no page"


def last_day(midnight_ms: int) -> tuple[str, ...]:
    def iso(ms: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))

    return ("--from", iso(midnight_ms - DAY_MS), "--to", iso(midnight_ms))


def from_exported_files(pipeline: Pipeline, entries: Sequence[Entry], folder: Path) -> None:
    """Another lake, made of files: the same rows, whatever the order of the files and how much they overlap."""
    files = []
    for name, part in (("late", entries[20:]), ("early", entries[:25])):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps({"id": str(at), "d": d.decode()}) + "\n" for at, d in part))
    other = ("--lake", str(folder / "from-files"))
    imported = [word for file in files for word in ("--import", str(file))]
    assert pipeline("backfill", *imported, *other).code == 0
    assert pipeline("backfill", *imported, *other).code == 0, "nothing new"
    checked = pipeline.json("run", "check", *other, code=1)
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, 1)]
    gap = folder / "gap.jsonl"
    gap.write_text(json.dumps({"id": str(EntryId(entries[-1][0].ms + 1, ENTRIES + 2)), "d": "{}"}) + "\n")
    assert pipeline("backfill", "--import", str(gap), *other).code == 4, "version 49 is missing between them"


def after_the_store_lost_its_data(pipeline: Pipeline, stream: Stream) -> None:
    stream.drop()
    began_ms = int(time.time() * 1000) - 10_000
    stream.append((EntryId(began_ms + version, version), told("broker-registered")) for version in range(1, 4))
    assert pipeline("ingest", "--once").code == 4, "this is another history"
    (rebased,) = (one for one in pipeline.json("run", "rebase")["rebased"] if one["stream"] == "changes")
    assert (rebased["old_version"], rebased["era"]) == (ENTRIES, 1)
    assert pipeline("ingest", "--once").code == 0
    eras = pipeline.json("run", "check", code=1)["integrity"]
    assert [(era["era"], era["entries"]) for era in eras] == [(0, ENTRIES), (1, 3)]


@pytest.mark.slow
def test_an_endless_ingest_refreshes_and_ends_in_order(
    stream: Stream, environment: dict[str, str], midnight_ms: int, tmp_path: Path
) -> None:
    entries = two_days(midnight_ms)
    stream.append(entries[:30])
    arguments = ("ingest", "--trigger", "1s", "--refresh", "5s", *SMALL, "--conf", QUICK_START)
    with ingesting(arguments, environment, tmp_path / "says.txt") as process:
        says = tmp_path / "says.txt"
        wait_for(lambda: "versions 1 to 30" in says.read_text(), process, says)
        stream.append(entries[30:])
        wait_for(lambda: f"to {ENTRIES}" in says.read_text(), process, says)
        wait_for(
            lambda: any((tmp_path / "lake").rglob("answers*")) or "kept answers" in says.read_text(), process, says
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, says.read_text()


@contextmanager
def ingesting(arguments: Sequence[str], environment: dict[str, str], says: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with says.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "routebook", "pipeline", *arguments],
            env={**os.environ, **environment},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(is_true: Any, process: "subprocess.Popen[bytes]", says: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert process.poll() is None, says.read_text()
        assert time.monotonic() < end, says.read_text()
        time.sleep(0.3)
