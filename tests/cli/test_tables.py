"""Tables line up, whatever the letters."""

import pytest

from routebook.cli.expiry import flat
from routebook.cli.tables import print_fields, print_table


def test_columns_line_up_and_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "queues"), [("a", 8), ("主题", 16), ("e\u0301", None)])
    assert capsys.readouterr().out == "TOPIC  QUEUES\na           8\n主题       16\ne\u0301           -\n"


def test_an_empty_table_says_so_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "(none)\n")


def test_fields_are_shown_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("held", True), ("brokers", ["a", "b"]), ("since", None), ("none", [])])
    assert capsys.readouterr().out == "held     yes\nbrokers  a, b\nsince    -\nnone     -\n"


def test_nested_answers_become_flat_names_and_moments() -> None:
    nested = {"leader": {"last_scan_ms": 1763475600000}, "workers": [{"pid": 1}, {"pid": 2}], "lease_ms": 10000}
    assert list(flat(nested)) == [
        ("leader last scan", "2025-11-18 14:20:00.000+00:00"),
        ("workers 1 pid", 1),
        ("workers 2 pid", 2),
        ("lease ms", 10000),
    ]
