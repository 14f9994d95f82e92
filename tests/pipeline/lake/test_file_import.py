"""Imported files must be of the same history as the lake."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import HistoryError
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.file_import import LakeHistory, import_files
from routebook_pipeline.lake.rebase import rebase
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.lake.stores import Store
from tests.pipeline.lake.streams import START_MS, entries, frame, hole, payload, versions

POSITION = EntryId(9_000, 50)


@pytest.mark.parametrize(
    ("history", "found", "first_later_ms", "reason"),
    [
        (LakeHistory(POSITION, POSITION, None), set(), None, None),
        (LakeHistory(POSITION, POSITION, None), {POSITION}, 9_000, None),
        (
            LakeHistory(POSITION, POSITION, None),
            {EntryId(8_999, 50)},
            None,
            "version 50 is from 1970-01-01T00:00:08.999Z in the files",
        ),
        (
            LakeHistory(POSITION, POSITION, None),
            {POSITION, EntryId(9_001, 50)},
            None,
            "version 50 is from 1970-01-01T00:00:09.001Z",
        ),
        (
            LakeHistory(POSITION, POSITION, None),
            set(),
            8_999,
            "the entries after version 50 are from 1970-01-01T00:00:08.999Z",
        ),
        (
            LakeHistory(POSITION, None, EntryId(7_000, 91)),
            {EntryId(7_000, 91)},
            9_000,
            "the history before this one ended",
        ),
        (LakeHistory(POSITION, None, EntryId(7_000, 91)), {EntryId(9_500, 91)}, 9_000, None),
    ],
)
def test_files_must_agree_with_the_lake(
    history: LakeHistory, found: set[EntryId], first_later_ms: int | None, reason: str | None
) -> None:
    actual = history.contradiction(found, first_later_ms)
    assert actual is None if reason is None else reason in (actual or "")


def export(folder: Path, rows: list[tuple[str, bytes]]) -> str:
    lines = [json.dumps({"id": entry_id, "d": text.decode()}) for entry_id, text in rows]
    file = folder / "exported.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.slow
def test_a_file_from_before_the_store_lost_changes_is_refused(
    spark: SparkSession, store: Store, tmp_path: Path, namespace_name: str
) -> None:
    """By its versions alone, the file would continue the lake."""
    lake = Lake(str(tmp_path / "lake"), namespace_name)
    table = lake.changes
    table.create()
    lost = entries(1, 20)
    commit(frame(spark, lost), table, ingested_ms=5)
    current = [*entries(1, 8), *((f"{START_MS + 90_000 + n}-{n}", payload(n)) for n in range(9, 25))]
    store.add(current[:15])
    rebase(spark, lake)

    def check_refused(rows: list[tuple[str, bytes]], reason: str) -> None:
        position = table.pin().position
        with pytest.raises(HistoryError, match=reason):
            import_files(spark, lake, [export(tmp_path, rows)])
        assert table.pin().position == position

    check_refused(lost, "version 20 of .*, with which the history before this one ended")
    commit(frame(spark, current[:15]), table, ingested_ms=6)
    check_refused(lost, "version 15 is from .* in the files, and .* in the lake")
    check_refused(lost[15:], "the entries after version 15 are from .*, but the lake is at")
    done = import_files(spark, lake, [export(tmp_path, current[3:])])
    assert done is not None
    assert (done.era, done.first, done.last) == (1, 16, 24)
    assert table.pin().position == Position(1, 24)


@pytest.mark.slow
def test_a_file_may_contain_entries_that_the_lake_has_as_a_hole(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """The time of a hole is unknown, so it contradicts nothing."""
    commit(frame(spark, [*entries(1, 5), hole(6, 9)]), lake.changes, ingested_ms=5)
    done = import_files(spark, lake, [export(tmp_path, entries(1, 12))])
    assert done is not None
    assert (done.first, done.last) == (10, 12)
    assert versions(spark, lake.changes) == [*((n, n) for n in range(1, 6)), (6, 9), (10, 10), (11, 11), (12, 12)]
