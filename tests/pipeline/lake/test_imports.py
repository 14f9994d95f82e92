"""Files that are to go into a lake: of its history, or of another one."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import HistoryError
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.file_import import Known, import_files
from routebook_pipeline.lake.rebase import rebase
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.lake.stores import Store
from tests.pipeline.lake.streams import START_MS, entries, frame, hole, payload, versions

PLACE = EntryId(9_000, 50)


@pytest.mark.parametrize(
    ("known", "found", "behind_ms", "words"),
    [
        (Known(PLACE, PLACE, None), set(), None, None),
        (Known(PLACE, PLACE, None), {PLACE}, 9_000, None),
        (Known(PLACE, PLACE, None), {EntryId(8_999, 50)}, None, "version 50 is of 1970-01-01T00:00:08.999Z there"),
        (Known(PLACE, PLACE, None), {PLACE, EntryId(9_001, 50)}, None, "version 50 is of 1970-01-01T00:00:09.001Z"),
        (Known(PLACE, PLACE, None), set(), 8_999, "what follows version 50 is of 1970-01-01T00:00:08.999Z there"),
        (Known(PLACE, None, EntryId(7_000, 91)), {EntryId(7_000, 91)}, 9_000, "the history before this one ended"),
        (Known(PLACE, None, EntryId(7_000, 91)), {EntryId(9_500, 91)}, 9_000, None),
    ],
)
def test_files_must_agree_with_the_lake(
    known: Known, found: set[EntryId], behind_ms: int | None, words: str | None
) -> None:
    told = known.contradiction(found, behind_ms)
    assert told is None if words is None else words in (told or "")


def export(folder: Path, rows: list[tuple[str, bytes]]) -> str:
    lines = [json.dumps({"id": entry_id, "d": text.decode()}) for entry_id, text in rows]
    file = folder / "exported.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


@pytest.mark.slow
def test_a_file_from_before_the_store_lost_its_tail_is_refused(
    spark: SparkSession, store: Store, tmp_path: Path, namespace_name: str
) -> None:
    """Version for version it would go on right behind the lake."""
    lake = Lake(str(tmp_path / "lake"), namespace_name)
    table = lake.changes
    table.make()
    dead = entries(1, 20)
    commit(frame(spark, dead), table, ingested_ms=5)
    alive = [*entries(1, 8), *((f"{START_MS + 90_000 + n}-{n}", payload(n)) for n in range(9, 25))]
    store.add(alive[:15])
    rebase(spark, lake)

    def refuse(rows: list[tuple[str, bytes]], words: str) -> None:
        place = table.pin().position
        with pytest.raises(HistoryError, match=words):
            import_files(spark, lake, [export(tmp_path, rows)])
        assert table.pin().position == place

    refuse(dead, "version 20 of .*, with which the history before this one ended")
    commit(frame(spark, alive[:15]), table, ingested_ms=6)
    refuse(dead, "version 15 is of .* there, and of .* in the lake")
    refuse(dead[15:], "what follows version 15 is of .* there")
    done = import_files(spark, lake, [export(tmp_path, alive[3:])])
    assert done is not None
    assert (done.era, done.first, done.last) == (1, 16, 24)
    assert table.pin().position == Position(1, 24)


@pytest.mark.slow
def test_a_file_may_have_what_the_lake_noted_as_lost(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Of a loss, nobody knows at what time it was."""
    commit(frame(spark, [*entries(1, 5), hole(6, 9)]), lake.changes, ingested_ms=5)
    done = import_files(spark, lake, [export(tmp_path, entries(1, 12))])
    assert done is not None
    assert (done.first, done.last) == (10, 12)
    assert versions(spark, lake.changes) == [*((n, n) for n in range(1, 6)), (6, 9), (10, 10), (11, 11), (12, 12)]
