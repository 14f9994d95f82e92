"""An answer is the same in every form."""

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
from routebook_pipeline.cli.output import CSV, JSON, TABLE, answer_output, print_answer
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
    """The answer for a window of two hours, of which the history covers one."""
    extent = HistoryExtent(HOUR_MS, HOUR_MS, since_ms=5, store_problem="the store does not answer")
    context = AnswerContext(Lake(str(folder), "ns"), extent, ResolvedWindow(Window(0, HOUR_MS), 2 * HOUR_MS))
    return Answer(QUESTIONS["route-diff"], "topic", context, ROUTE_DIFF, rows, integrity)


@pytest.fixture
def computed(tmp_path: Path) -> ComputedAnswer:
    """Two rows with maps and lists, as Spark returns them."""
    maps = ("addresses_before", "addresses_after")
    as_pairs = [{name: [*row[name].items()] if name in maps else row[name] for name in row} for row in DIFFERENCES]
    table = pyarrow.Table.from_pylist(as_pairs, to_arrow_schema(ROUTE_DIFF))
    return ComputedAnswer(answer_of(None, None, tmp_path), table, [WHOLE])


@pytest.mark.slow
def test_rows_from_spark_are_sorted_by_their_names(
    small_spark: SparkSession, computed: ComputedAnswer, tmp_path: Path
) -> None:
    rows, integrity = (
        small_spark.createDataFrame([tuple(one.get(name) for name in schema.names) for one in values], schema)
        for values, schema in ((DIFFERENCES[::-1], ROUTE_DIFF), ([WHOLE], INTEGRITY))
    )
    from_spark = compute(answer_of(rows, integrity, tmp_path))
    assert from_spark.table.equals(computed.table)
    assert from_spark.integrity == computed.integrity


@pytest.fixture
def as_json(computed: ComputedAnswer, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    print_answer(computed, JSON, None)
    printed = capsys.readouterr()
    assert printed.err == "", "everything is in the object"
    answer: dict[str, Any] = json.loads(printed.out)
    return answer


def test_json_has_the_metadata_and_the_rows(as_json: dict[str, Any]) -> None:
    assert {name: value for name, value in as_json.items() if name not in ("integrity", "rows")} == {
        "question": "route-diff",
        "by": "topic",
        "window": {"from": "1970-01-01T00:00:00.000Z", "to": "1970-01-01T01:00:00.000Z"},
        "since": "1970-01-01T00:00:00.005Z",
        "complete_until": "1970-01-01T01:00:00.000Z",
        "partial": True,
        "ok": False,
    }
    assert list(as_json) == list(example_with("question")), "not the documented fields"
    (era,) = as_json["integrity"]
    assert (era["holes"], era["unreadable"]) == ([{"from_version": 3, "to_version": 4}], {"json": 1})
    assert [row["topic"] for row in as_json["rows"]] == ["a", "b,c\n"]
    assert as_json["rows"][1]["addresses_after"] == {"0": "127.0.0.1:1"}
    assert as_json["rows"][0]["entries"][0]["actor"] == 'o"ps'


def test_csv_has_the_same_rows_with_json_for_maps_and_lists(
    computed: ComputedAnswer, as_json: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(computed, CSV, None)
    printed = capsys.readouterr()
    head, *lines = csv.reader(io.StringIO(printed.out))
    assert head == ROUTE_DIFF.names

    def read(name: str, text: str) -> Any:
        is_text = name in ("topic", "cluster", "broker", "difference")
        return text if is_text else json.loads(text) if text else None

    rows = [{name: read(name, text) for name, text in zip(head, line, strict=True)} for line in lines]
    assert rows == as_json["rows"]
    for words in ("PARTIAL: asked until", "evidence since", "2 missing (3-4)", "the store does not answer"):
        assert words in printed.err


def test_parquet_has_the_same_rows_and_the_metadata(
    computed: ComputedAnswer, as_json: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "differences.parquet"
    print_answer(computed, TABLE, str(file))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "2 rows in" in printed.err
    assert "PARTIAL" in printed.err
    table = pyarrow.parquet.read_table(file)
    assert table.schema.names == ROUTE_DIFF.names
    assert table.equals(computed.table)
    metadata = json.loads(table.schema.metadata[METADATA_KEY])
    assert {**metadata, "rows": as_json["rows"]} == as_json

    print_answer(computed, TABLE, f"file://{tmp_path}/by-address.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "by-address.parquet").equals(computed.table)


def test_a_table_is_followed_by_the_state_of_the_history(
    computed: ComputedAnswer, capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(computed, TABLE, None)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("TOPIC")
    assert "history NOT ok: versions 1 to 9, 7 entries, 2 missing (3-4), 1 unreadable (json)" in printed.out


@pytest.mark.parametrize("form", [TABLE, JSON, CSV])
def test_a_file_gets_the_same_text_as_standard_output(
    computed: ComputedAnswer, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer(computed, form, None)
    printed = capsys.readouterr()
    file = tmp_path / "new" / "answer"
    with answer_output(str(file)):
        print_answer(computed, form, None)
    assert file.read_text(encoding="utf-8") == printed.out
    assert capsys.readouterr() == ("", printed.err)
    assert "集群" in printed.out


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Like a disk with this much space left."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.usefixtures("capsys")
@pytest.mark.parametrize("flag", ["--out", "--parquet"])
def test_an_answer_that_does_not_fit_leaves_the_previous_file(
    computed: ComputedAnswer, flag: str, tmp_path: Path
) -> None:
    out = tmp_path / "answer"
    out.write_text("previous file")

    def write() -> None:
        if flag == "--parquet":
            print_answer(computed, TABLE, str(out))
        else:
            with answer_output(str(out)):
                print_answer(computed, JSON, None)

    with files_no_larger_than(100), pytest.raises(UnreachableError, match=rf"cannot be written.*too large.*{flag}"):
        write()
    assert out.read_text() == "previous file"
    assert list(tmp_path.iterdir()) == [out]
    write()
    assert out.stat().st_size > 100


@pytest.mark.parametrize("name", ["", "below"])
def test_a_path_that_cannot_be_written_is_named(computed: ComputedAnswer, name: str, tmp_path: Path) -> None:
    """A folder, and a path below a file."""
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / name) if name else str(tmp_path)
    with pytest.raises(UnreachableError, match=r"cannot be written.*--parquet"):
        print_answer(computed, TABLE, out)
    with pytest.raises(UnreachableError, match=r"cannot be written.*--out"), answer_output(out):
        print_answer(computed, TABLE, None)
