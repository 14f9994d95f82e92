"""Answers as tables: formatted cells, aligned columns, and wrapping on a terminal."""

import sys

import click
import pytest

from routebook_pipeline.cli.output import format_cell, print_rows, print_table


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("since_ms", 0, "1970-01-01T00:00:00Z"),
        ("up_ms", 90_000, "1 m 30 s"),
        ("availability", 0.9995, "99.9500 %"),
        ("peak", 1.23456, "1.235"),
        ("met", True, "yes"),
        ("mtbf_ms", None, "-"),
        ("addresses", {1: "127.0.0.2:1", 0: "127.0.0.1:1"}, "0=127.0.0.1:1 1=127.0.0.2:1"),
        ("versions", [3, 4], "3, 4"),
        ("holes", [{"from_version": 3, "to_version": 4}], "3-4"),
        ("entries", [{"version": 3, "kind": "broker-removed", "cause": "expired"}], "3 broker-removed (expired)"),
    ],
)
def test_a_cell_is_formatted_by_the_meaning_of_its_column(name: str, value: object, text: str) -> None:
    assert format_cell(name, value) == text


def test_empty_columns_are_left_out_and_wide_letters_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"cluster": "集群", "broker": None, "unplanned": 3}, {"cluster": "c", "broker": None, "unplanned": 12}]
    print_rows(("cluster", "broker", "unplanned"), rows)
    assert capsys.readouterr().out.splitlines() == ["CLUSTER  UNPLANNED", "集群             3", "c               12"]


def test_an_answer_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("cluster",), [])
    assert capsys.readouterr().out == "(no rows)\n"


def test_a_pipe_gets_one_line_for_each_row_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([["ERROR", "x" * 300], ["ok", "[bold]y"]], colours={"ERROR": "red"})
    assert capsys.readouterr().out.splitlines() == [f"ERROR  {'x' * 300}", "ok     [bold]y"]


def test_a_terminal_gets_wrapped_cells_and_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    print_table([["ERROR", "x" * 100], ["ok", "[bold]y"]], ["LEVEL", "MESSAGE"], colours={"ERROR": "red"})
    printed = capsys.readouterr().out
    lines = [click.unstyle(line).rstrip() for line in printed.splitlines()]
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100
    assert "\x1b[31mERROR" in printed
    assert lines[-1] == "ok     [bold]y"
