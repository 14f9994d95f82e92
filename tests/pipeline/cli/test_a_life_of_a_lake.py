"""What an operator's cron job and an operator do with a lake, from the first night to a store that lost its data: each
step a command, in one process with one Java.
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
from tests.pipeline.cli.operator import DAYS, ENTRIES, Entry, Pipeline, last_day, lines_of, told, two_days
from tests.pipeline.cli.shell import Ended, Shell
from tests.pipeline.source.streams import Stream


@pytest.mark.slow
def test_a_life_of_a_lake(
    stream: Stream, environment: dict[str, str], lake: Lake, midnight_ms: int, tmp_path: Path
) -> None:
    entries = two_days(midnight_ms)
    stream.append(entries[:24])
    with Shell(environment) as shell:
        pipeline = Pipeline(shell)
        a_day_in_small_batches(pipeline)
        stream.append(entries[24:])
        a_night(pipeline, tmp_path)
        what_is_left_to_do_for_the_files(pipeline, lake)
        what_can_be_done_by_hand(pipeline, midnight_ms, tmp_path)
        from_exported_files(pipeline, entries, midnight_ms, Lake(str(tmp_path / "from files"), stream.namespace))
        after_the_store_lost_its_data(pipeline, stream)


def a_day_in_small_batches(pipeline: Pipeline) -> None:
    assert pipeline("ingest", "--once", "--max-entries", "8").code == 0
    joined = pipeline.without_spark("run", "compact", "--json")
    assert (joined.code, json.loads(joined.out)) == (0, {"joined": 3, "into": 1})


def what_is_left_to_do_for_the_files(pipeline: Pipeline, lake: Lake) -> None:
    """Nothing but what a killed attempt left behind a week ago: the night has looked after them."""
    assert pipeline.without_spark("run", "compact") == Ended(0, "0 files joined into 0\n")
    left = Path(lake.changes.folder.uri, "data", "left", "part-0.parquet")
    left.parent.mkdir()
    left.touch()
    os.utime(left, (1, 1))
    assert pipeline.without_spark("run", "vacuum") == Ended(0, "1 files deleted\n")
    assert not left.exists()
    assert pipeline.without_spark("run", "vacuum", "--json") == Ended(0, '{\n  "deleted": 0\n}\n')


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
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, {"json": 1})]

    asked = ("run", "availability", "--by", "seat", *last_day(midnight_ms))
    before = pipeline.json(*asked)
    assert [(row["broker"], row["availability"]) for row in before["rows"]] == [("b", 1.0)]
    assert pipeline("backfill", "--reparse", *last_day(midnight_ms)).code == 0
    assert pipeline.json(*asked)["rows"] == before["rows"]

    page = folder / "by-hand" / "report.html"
    assert pipeline("report", *last_day(midnight_ms), "--out", str(page)).code == 0
    assert "<svg" in page.read_text()
    assert pipeline("report", "--out", str(folder)).code == 2, "a folder is no page"


def from_exported_files(pipeline: Pipeline, entries: Sequence[Entry], midnight_ms: int, lake: Lake) -> None:
    """Another lake, made of files: the same rows, whatever the order of the files and how much they overlap. Of the
    days, only the one that is asked for.
    """
    folder = Path(lake.root).parent
    exported, early = folder / "exported.jsonl", folder / "early part.jsonl"
    assert pipeline.without_spark("export", "--out", str(exported)) == Ended(0, "")
    assert exported.read_text() == lines_of(entries)
    early.write_text(lines_of(entries[:25]))
    other = ("--lake", lake.root)
    imported = ("backfill", "--import", str(exported), str(early), *other)

    assert pipeline(*imported, *last_day(midnight_ms)).code == 0
    asked_for = {day_of(midnight_ms - DAY_MS)}
    assert {file.day for file in lake.snapshots.pin().files} == asked_for
    kept = {one.name: {file.day for file in one.table(lake).pin().files} for one in STORED_ANSWERS}
    assert kept["availability-by-seat"] == kept["integrity-by-era"] == asked_for
    assert all(days <= asked_for for days in kept.values())

    versions = {one: one.table(lake).pin().version for one in STORED_ANSWERS}
    assert pipeline(*imported, *last_day(midnight_ms)).code == 0, "nothing new"
    assert {one: one.table(lake).pin().version for one in STORED_ANSWERS} == versions
    checked = pipeline.json("run", "check", *other, code=1)
    assert [(era["entries"], era["unreadable"]) for era in checked["integrity"]] == [(ENTRIES, {"json": 1})]

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
