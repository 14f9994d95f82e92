"""Tables align, whatever the letters, and fit a terminal."""

import sys

import click
import pytest

from routebook.cli.operation import flat_fields
from routebook.cli.output import print_fields, print_table


def test_columns_align_and_numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "queues"), [("a", 8), ("主题", 16), ("e\u0301", None)])
    assert capsys.readouterr().out == "TOPIC  QUEUES\na           8\n主题       16\ne\u0301           -\n"


def test_a_pipe_receives_each_row_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("cluster", "brokers"), [("demo", [f"broker-{number}" for number in range(100)])])
    header, row = capsys.readouterr().out.splitlines()
    assert header == "CLUSTER  BROKERS"
    assert row.endswith("broker-99")


def test_a_table_wraps_at_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("cluster", "brokers"), [("demo", [f"broker-{number}" for number in range(20)])])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert max(len(click.unstyle(line)) for line in lines) <= 40


def test_an_empty_table_writes_a_note_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "(none)\n")


def test_markup_in_a_name_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [("[bold]T[/bold]",), (":smile:",)])
    assert capsys.readouterr().out == "TOPIC\n[bold]T[/bold]\n:smile:\n"


def test_fields_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("held", True), ("brokers", ["a", "b"]), ("since", None), ("none", [])])
    assert capsys.readouterr().out == "held     yes\nbrokers  a, b\nsince    -\nnone     -\n"


def test_nested_answers_become_flat_names_and_timestamps() -> None:
    nested = {"leader": {"last_scan_ms": 1763475600000}, "workers": [{"pid": 1}, {"pid": 2}], "lease_ms": 10000}
    assert list(flat_fields(nested)) == [
        ("leader last scan", "2025-11-18 14:20:00.000+00:00"),
        ("workers 1 pid", 1),
        ("workers 2 pid", 2),
        ("lease ms", 10000),
    ]
