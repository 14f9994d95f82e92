"""The commands of a cron job and of an operator on one lake, from the first night to a store that lost its data. They
run in one process with one Java.
"""

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from routebook_pipeline.answers.daily import STORED_ANSWERS
from routebook_pipeline.history import DAY_MS
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.stream import EntryId
from routebook_pipeline.times import day_of
from tests.pipeline.cli.commands import DAYS, ENTRIES, Entry, Pipeline, export_file, iso, last_day, seat_entry, two_days
from tests.pipeline.cli.shell import Result, Shell
from tests.pipeline.source.streams import Stream


@pytest.mark.slow
def test_a_lake_from_its_first_night_to_a_rebase(
    stream: Stream, environment: dict[str, str], lake: Lake, midnight_ms: int, tmp_path: Path
) -> None:
    entries = two_days(midnight_ms)
    stream.append(entries[:24])
    with Shell(environment) as shell:
        pipeline = Pipeline(shell)
        ingest_in_small_batches(pipeline)
        stream.append(entries[24:])
        run_nightly(pipeline, tmp_path)
        compact_and_vacuum(pipeline, lake)
        run_single_commands(pipeline, midnight_ms, tmp_path)
        import_exported_files(pipeline, entries, midnight_ms, Lake(str(tmp_path / "from files"), stream.namespace))
        rebase_after_the_store_lost_its_data(pipeline, stream)


def ingest_in_small_batches(pipeline: Pipeline) -> None:
    assert pipeline("ingest", "--once", "--max-entries", "8").code == 0
    joined = pipeline.without_spark("run", "compact", "--json")
    assert (joined.code, json.loads(joined.out)) == (0, {"joined": 3, "into": 1})


def compact_and_vacuum(pipeline: Pipeline, lake: Lake) -> None:
    """The night has joined all files, so only a file that a killed writer left a week ago is to be deleted."""
    assert pipeline.without_spark("run", "compact") == Result(0, "0 files joined into 0\n")
    orphan = Path(lake.changes.folder.uri, "data", "orphan", "part-0.parquet")
    orphan.parent.mkdir()
    orphan.touch()
    os.utime(orphan, (1, 1))
    assert pipeline.without_spark("run", "vacuum") == Result(0, "1 files deleted\n")
    assert not orphan.exists()
    assert pipeline.without_spark("run", "vacuum", "--json") == Result(0, '{\n  "deleted": 0\n}\n')


def run_nightly(pipeline: Pipeline, folder: Path) -> None:
    """One entry is unreadable, so the exit code is 1 with `--fail`."""
    words = ("nightly", "--fail", "--days", str(DAYS), "--out", str(folder / "reports" / "%Y-%m-%d.html"))
    assert pipeline(*words).code == 1
    (page,) = (folder / "reports").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.html", page.name)
    assert "<svg" in page.read_text()


def run_single_commands(pipeline: Pipeline, midnight_ms: int, folder: Path) -> None:
    built = pipeline.json("run", "snapshot")["days"]
    assert day_of(midnight_ms - DAY_MS) in built, "the night builds none of so short a history"
    assert pipeline.json("run", "snapshot") == {"days": []}
    checked = pipeline.json("run", "check", code=1)
    assert checked["ok"] is False
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, {"json": 1})]

    words = ("run", "availability", "--by", "seat", *last_day(midnight_ms))
    before = pipeline.json(*words)
    assert [(row["broker"], row["availability"]) for row in before["rows"]] == [("b", 1.0)]
    assert pipeline("backfill", "--reparse", *last_day(midnight_ms)).code == 0
    assert pipeline.json(*words)["rows"] == before["rows"]

    differences = pipeline.json("run", "route-diff", *last_day(midnight_ms))["rows"]
    found = [(row["topic"], row["difference"]) for row in differences]
    assert found == [("orders", "added"), (None, "added")], "a window has its start"
    of_topic = ("--topic", "orders", "--broker", "b", "--top", "1", "--worst-first")
    assert pipeline.json("run", "route-diff", *last_day(midnight_ms), *of_topic)["rows"] == differences[1:]
    later = ("--from", iso(midnight_ms - DAY_MS + 1000), "--to", iso(midnight_ms))
    assert pipeline.json("run", "route-diff", *later)["rows"] == []

    page = folder / "by-hand" / "report.html"
    assert pipeline("report", *last_day(midnight_ms), "--out", str(page)).code == 0
    assert "<svg" in page.read_text()
    assert pipeline("report", "--out", str(folder)).code == 2, "a folder cannot be the page"


def import_exported_files(pipeline: Pipeline, entries: Sequence[Entry], midnight_ms: int, lake: Lake) -> None:
    """Another lake, filled from files: the same rows, whatever the order of the files and however much they overlap.
    Answers are stored only for the days of the window.
    """
    folder = Path(lake.root).parent
    exported, early = folder / "exported.jsonl", folder / "early part.jsonl"
    assert pipeline.without_spark("export", "--out", str(exported)) == Result(0, "")
    assert exported.read_text() == export_file(entries)
    early.write_text(export_file(entries[:25]))
    other = ("--lake", lake.root)
    imported = ("backfill", "--import", str(exported), str(early), *other)

    assert pipeline(*imported, *last_day(midnight_ms)).code == 0
    expected_days = {day_of(midnight_ms - DAY_MS)}
    assert not lake.snapshots.exists(), "the history is short"
    stored = {one.name: {file.day for file in one.table(lake).pin().files} for one in STORED_ANSWERS}
    assert stored["availability-by-seat"] == stored["integrity-by-era"] == expected_days
    assert all(days <= expected_days for days in stored.values())

    versions = {one: one.table(lake).pin().version for one in STORED_ANSWERS}
    assert pipeline(*imported, *last_day(midnight_ms)).code == 0, "nothing new"
    assert {one: one.table(lake).pin().version for one in STORED_ANSWERS} == versions
    checked = pipeline.json("run", "check", *other, code=1)
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, {"json": 1})]

    gap = folder / "gap.jsonl"
    gap.write_text(json.dumps({"id": str(EntryId(entries[-1][0].ms + 1, ENTRIES + 2)), "d": "{}"}) + "\n")
    assert pipeline("backfill", "--import", str(gap), *other).code == 4, (
        "version 49 is missing between the lake and the file"
    )


def rebase_after_the_store_lost_its_data(pipeline: Pipeline, stream: Stream) -> None:
    stream.drop()
    started_ms = int(time.time() * 1000) - 10_000
    stream.append((EntryId(started_ms + version, version), seat_entry("broker-registered")) for version in range(1, 4))
    assert pipeline("ingest", "--once").code == 4, "this is another history"
    (rebased,) = (one for one in pipeline.json("run", "rebase")["rebased"] if one["stream"] == "changes")
    assert (rebased["old_version"], rebased["era"]) == (ENTRIES, 1)
    assert pipeline("ingest", "--once").code == 0
    eras = pipeline.json("run", "check", code=1)["integrity"]
    assert [(era["era"], era["entries"]) for era in eras] == [(0, ENTRIES), (1, 3)]
