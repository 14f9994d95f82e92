"""Every fault has a test that injects it, and `docs/reliability.md` shows the same faults."""

import ast
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.faults.__main__ import TOTAL_S, Run, _counts, planned_s
from tests.faults.page import BEGIN, END, PAGE, Outcome, rows_of, write_page
from tests.faults.rows import ROWS, Row
from tests.support.figures import Figure, Figures, read_figures


@cache
def names_in(path: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, functions) and node.name.startswith("test_")
    )


def test_there_are_37_faults() -> None:
    assert [row.number for row in ROWS] == list(range(1, 38))


def test_all_rows_take_at_most_45_minutes() -> None:
    assert planned_s(ROWS) <= TOTAL_S


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_every_fault_has_a_test_that_exists(row: Row) -> None:
    assert row.nodes
    for node in row.nodes:
        path, _, name = node.partition("::")
        assert (ROOT / path).is_file(), node
        assert not name or name in names_in(ROOT / path), node


def test_the_page_shows_every_fault_as_the_registry_has_it() -> None:
    shown = rows_of(PAGE)
    assert {row.number: (row.fault, row.injected, row.asked) for row in ROWS} == {
        number: cells[:3] for number, cells in shown.items()
    }


def test_every_figure_of_the_page_was_seen() -> None:
    for number, (*_, seen, seed) in rows_of(PAGE).items():
        assert seen, f"row {number} shows no figure"
        assert seed.isdigit(), f"row {number} shows no seed"


def test_a_written_page_is_read_back(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nformer text\n{END}\nafter\n")
    figures = [
        Figure("n", "writes work again after", "≤ 5 s", "1.2 s", True),
        Figure("n", "writes work again after", "≤ 5 s", "7 s", False),
    ]
    write_page(page, [Outcome(ROWS[0], figures, 1, 1, ["no Java | here"], 3.0, 7)], "2026-01-01")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "former text" not in text
    ((number, cells),) = rows_of(page).items()
    assert (number, cells[0], cells[2], cells[4]) == (1, ROWS[0].fault, ROWS[0].asked, "7")
    assert "**failed**" in cells[3]
    assert "**missed**: writes work again after: 1.2 s, 7 s (asked ≤ 5 s)" in cells[3]


def test_a_figure_that_misses_its_limit_is_shown_with_its_reason_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "figures"
    monkeypatch.setenv("ROUTEBOOK_TEST_FIGURES", str(file))
    with pytest.raises(AssertionError, match="a step takes 3 ms"):
        Figures("n")("p99 / calm", 5, at_most=3, reason="a step takes 3 ms")
    Figures("n")("stalls", 0, at_most=0, reason="there are none")
    outcome = Outcome(ROWS[0], read_figures(file), 0, 1, [], 3.0, 7)
    assert outcome.verdict == "failed"
    assert outcome.seen[:2] == [
        "**missed**: p99 / calm: 5 (asked ≤ 3), because a step takes 3 ms",
        "stalls: 0 (asked ≤ 0)",
    ]


def test_a_figure_that_misses_its_limit_fails_and_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTEBOOK_TEST_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("ROUTEBOOK_TEST_SEED", "7")
    figure = Figures("node")
    assert figure.choose_seed() == 7
    figure("lookups", 100, at_least=80)
    with pytest.raises(AssertionError, match="6 s"):
        figure("took", 6, "s", at_most=5)
    assert [(one.name, one.asked, one.seen, one.holds, one.seed) for one in read_figures(tmp_path / "figures")] == [
        ("lookups", "≥ 80", "100", True, 7),
        ("took", "≤ 5 s", "6 s", False, 7),
    ]


def test_a_row_that_takes_too_long_is_ended_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows both, and no figure of a run before."""
    tests = tmp_path / "test_rows_of_this_test.py"
    tests.write_text("import time\ndef test_slow():\n    time.sleep(300)\ndef test_quick():\n    pass\n")
    monkeypatch.setattr("tests.faults.__main__.LOGS", tmp_path / "logs")
    monkeypatch.setattr("tests.faults.__main__.ROOT", tmp_path)
    (tmp_path / "logs").mkdir()
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n| 1 | of the run before |\n{END}\n")
    slow = replace(ROWS[0], nodes=(f"{tests.name}::test_slow",), limit_s=4, alone=True)
    quick = replace(ROWS[1], nodes=(f"{tests.name}::test_quick",), limit_s=60, alone=True)
    run = Run([slow, quick], 7, ["--rootdir", str(tmp_path)], page=page)
    run.execute()
    assert [run.outcomes[number].verdict for number in (1, 2)] == ["failed", "held"]
    assert "of the run before" not in page.read_text()
    assert {number: cells[4] for number, cells in rows_of(page).items()} == {1: "7", 2: "7"}
    assert "**failed**. **ended after" in rows_of(page)[1][3]
    assert "ended after 4 s" in (tmp_path / "logs" / "row-1.log").read_text()


def test_a_run_that_ended_without_a_report_has_failed(tmp_path: Path) -> None:
    assert _counts(tmp_path / "none.xml") == (0, 1, [])


@pytest.mark.slow
def test_one_row_can_be_run_alone_with_a_seed() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--row", "23", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 rows held; seed 7" in ended.stdout
