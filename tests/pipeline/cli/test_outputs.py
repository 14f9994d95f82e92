"""One answer in every form it is given in: they say the same."""

import csv
import io
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from routebook_pipeline.answers.catalogue import QUESTIONS
from routebook_pipeline.answers.computation import METADATA_KEY, Answer, AnswerContext, ComputedAnswer, compute
from routebook_pipeline.answers.coverage import HistoryExtent, ResolvedWindow
from routebook_pipeline.cli.output import CSV, JSON, TABLE, answers_into, give
from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.history import HOUR_MS, Window
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.schemas import INTEGRITY, ROUTE_DIFF
from tests.pipeline.cli.documented import example_with

WINDOW = Window(0, 2 * HOUR_MS)
ENTRY = {"version": 7, "kind": "queues-changed", "cause": None, "actor": 'o"ps', "source": "[::1]:9"}
DIFFERENCES: list[dict[str, Any]] = [
    {"topic": "a", "cluster": "c", "broker": 'say "b"', "difference": "changed", "perm_before": 6, "entries": [ENTRY]},
    {"topic": "b,c\n", "cluster": "集群", "broker": "", "difference": "added", "addresses_after": {0: "127.0.0.1:1"}},
]
WHOLE = {
    "era": 0,
    "first_version": 1,
    "last_version": 9,
    "entries": 7,
    "missing": 2,
    "holes": [{"from_version": 3, "to_version": 4}],
    "forks": 0,
    "late": 0,
    "duplicates": 0,
    "unreadable": {"json": 1},
    "baselines": 1,
    "complete_until_ms": HOUR_MS,
    "ok": False,
}


def answer_of(rows: Any, integrity: Any, folder: Path) -> Answer:
    """To a question about two hours, of which one is over."""
    extent = HistoryExtent(HOUR_MS, HOUR_MS, since_ms=5, store_problem="the store does not answer")
    context = AnswerContext(Lake(str(folder), "ns"), extent, ResolvedWindow(Window(0, HOUR_MS), 2 * HOUR_MS))
    return Answer(QUESTIONS["route-diff"], "topic", context, ROUTE_DIFF, rows, integrity)


@pytest.fixture
def taken(tmp_path: Path) -> ComputedAnswer:
    """Two rows with maps and lists, as Spark would have handed them over."""
    maps = ("addresses_before", "addresses_after")
    as_pairs = [{name: [*row[name].items()] if name in maps else row[name] for name in row} for row in DIFFERENCES]
    table = pyarrow.Table.from_pylist(as_pairs, to_arrow_schema(ROUTE_DIFF))
    return ComputedAnswer(answer_of(None, None, tmp_path), table, [WHOLE])


@pytest.mark.slow
def test_an_answer_is_taken_from_spark_sorted_by_what_names_a_row(
    plainly: SparkSession, taken: ComputedAnswer, tmp_path: Path
) -> None:
    rows, integrity = (
        plainly.createDataFrame([tuple(one.get(name) for name in schema.names) for one in told], schema)
        for told, schema in ((DIFFERENCES[::-1], ROUTE_DIFF), ([WHOLE], INTEGRITY))
    )
    computed = compute(answer_of(rows, integrity, tmp_path))
    assert computed.table.equals(taken.table)
    assert computed.integrity == taken.integrity


@pytest.fixture
def as_json(taken: ComputedAnswer, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    give(taken, JSON, None)
    shown = capsys.readouterr()
    assert shown.err == "", "everything is in the object"
    told: dict[str, Any] = json.loads(shown.out)
    return told


def test_json_says_what_it_rests_on_and_then_the_rows(as_json: dict[str, Any]) -> None:
    assert {name: value for name, value in as_json.items() if name not in ("integrity", "rows")} == {
        "question": "route-diff",
        "by": "topic",
        "window": {"from": "1970-01-01T00:00:00.000Z", "to": "1970-01-01T01:00:00.000Z"},
        "since": "1970-01-01T00:00:00.005Z",
        "complete_until": "1970-01-01T01:00:00.000Z",
        "partial": True,
        "ok": False,
    }
    assert list(as_json) == list(example_with("question")), "as it is documented"
    (era,) = as_json["integrity"]
    assert (era["holes"], era["unreadable"]) == ([{"from_version": 3, "to_version": 4}], {"json": 1})
    assert [row["topic"] for row in as_json["rows"]] == ["a", "b,c\n"]
    assert as_json["rows"][1]["addresses_after"] == {"0": "127.0.0.1:1"}
    assert as_json["rows"][0]["entries"][0]["actor"] == 'o"ps'


def test_csv_has_the_same_rows_with_maps_and_lists_as_json_in_their_cells(
    taken: ComputedAnswer, as_json: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    give(taken, CSV, None)
    shown = capsys.readouterr()
    head, *lines = csv.reader(io.StringIO(shown.out))
    assert head == ROUTE_DIFF.names

    def read(name: str, text: str) -> Any:
        of_text = name in ("topic", "cluster", "broker", "difference")
        return text if of_text else json.loads(text) if text else None

    rows = [{name: read(name, text) for name, text in zip(head, line, strict=True)} for line in lines]
    assert rows == as_json["rows"]
    for said in ("PARTIAL: asked until", "evidence since", "2 missing (3-4)", "the store does not answer"):
        assert said in shown.err


def test_parquet_has_the_same_rows_and_carries_what_they_rest_on(
    taken: ComputedAnswer, as_json: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "differences.parquet"
    give(taken, TABLE, str(file))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2 rows in" in shown.err
    assert "PARTIAL" in shown.err
    table = pyarrow.parquet.read_table(file)
    assert table.schema.names == ROUTE_DIFF.names
    assert table.equals(taken.table)
    statement = json.loads(table.schema.metadata[METADATA_KEY])
    assert {**statement, "rows": as_json["rows"]} == as_json

    give(taken, TABLE, f"file://{tmp_path}/by-address.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "by-address.parquet").equals(taken.table)


def test_a_table_for_people_has_it_below(taken: ComputedAnswer, capsys: pytest.CaptureFixture[str]) -> None:
    give(taken, TABLE, None)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("TOPIC")
    assert "history NOT ok: versions 1 to 9, 7 entries, 2 missing (3-4), 1 unreadable (json)" in shown.out


@pytest.mark.parametrize("form", [TABLE, JSON, CSV])
def test_into_a_file_goes_what_standard_output_would_have_shown(
    taken: ComputedAnswer, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give(taken, form, None)
    shown = capsys.readouterr()
    file = tmp_path / "new" / "answer"
    with answers_into(str(file)):
        give(taken, form, None)
    assert file.read_text(encoding="utf-8") == shown.out
    assert capsys.readouterr() == ("", shown.err)
    assert "集群" in shown.out


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """As a disk with so much room."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.usefixtures("capsys")
@pytest.mark.parametrize("flag", ["--out", "--parquet"])
def test_an_answer_that_does_not_fit_leaves_the_one_of_before(taken: ComputedAnswer, flag: str, tmp_path: Path) -> None:
    out = tmp_path / "answer"
    out.write_text("of yesterday")

    def write() -> None:
        if flag == "--parquet":
            give(taken, TABLE, str(out))
        else:
            with answers_into(str(out)):
                give(taken, JSON, None)

    with files_no_larger_than(100), pytest.raises(UnreachableError, match=rf"cannot be written.*too large.*{flag}"):
        write()
    assert out.read_text() == "of yesterday"
    assert list(tmp_path.iterdir()) == [out]
    write()
    assert out.stat().st_size > 100


@pytest.mark.parametrize("place", ["", "below"])
def test_a_place_that_cannot_be_written_is_named(taken: ComputedAnswer, place: str, tmp_path: Path) -> None:
    """A folder, and below a file."""
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / place) if place else str(tmp_path)
    with pytest.raises(UnreachableError, match=r"cannot be written.*--parquet"):
        give(taken, TABLE, out)
    with pytest.raises(UnreachableError, match=r"cannot be written.*--out"), answers_into(out):
        give(taken, TABLE, None)
