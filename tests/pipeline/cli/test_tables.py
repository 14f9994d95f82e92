"""Answers as tables: formatted cells, aligned columns, and wrapping on a terminal."""

import json
import sys

import click
import pytest

from routebook_pipeline.cli.output import format_cell, print_json, print_rows, print_table


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
        ("versions", [*range(1, 9)], "1, 2, 3, 4, 5 and 3 more"),
        ("perm", 6, "rw"),
        ("perm_after", 4, "r-"),
        (
            "episodes",
            [{"first_ms": 0, "last_ms": 9000, "number": 3}],
            "3 from 1970-01-01T00:00:00Z to 1970-01-01T00:00:09Z",
        ),
        ("holes", [{"from_version": 3, "to_version": 4}], "3-4"),
        ("topic", "\x1b[2Jcleared\u202e", "\\x1b[2Jcleared\\u202e"),
        ("queues", {"\x07": "\n"}, "\\x07=\\n"),
        ("entries", [{"version": 3, "kind": "broker-removed", "cause": "expired"}], "3 broker-removed (expired)"),
    ],
)
def test_a_cell_is_formatted_by_the_meaning_of_its_column(name: str, value: object, text: str) -> None:
    assert format_cell(name, value) == text


def test_json_holds_no_character_that_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"topic": "\x1b[2J\x9b\u202e", "cluster": "集群"}
    print_json(value)
    printed = capsys.readouterr().out
    assert "集群" in printed
    assert all(letter.isprintable() for line in printed.splitlines() for letter in line)
    assert json.loads(printed) == value


def test_empty_columns_are_left_out_and_wide_letters_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"cluster": "集群", "broker": None, "unplanned": 3}, {"cluster": "c", "broker": None, "unplanned": 12}]
    print_rows(("cluster", "broker", "unplanned"), rows)
    assert capsys.readouterr().out.splitlines() == ["CLUSTER  UNPLANNED", "集群             3", "c               12"]


def test_a_share_and_a_time_of_one_name_have_different_titles(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("readable_ms", "readable"), [{"readable_ms": 1000, "readable": 1.0}])
    assert capsys.readouterr().out.splitlines()[0].split() == ["READABLE", "READABLE", "SHARE"]


def test_the_values_of_anomalies_have_the_units_of_their_rule(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"headless": 92_830.0, "late-heartbeats": 0.0123, "churn-spike": 1234567.0, "skew": 2.5}
    rows = [{"rule": rule, "value": value, "threshold": value} for rule, value in values.items()]
    print_rows(("rule", "value", "threshold"), rows)
    shown = [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == ["1 m 33 s", "1.2 %", "1234567", "2.5"]


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
