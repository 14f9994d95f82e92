"""Answers as tables for people."""

import pytest

from routebook_pipeline.cli.output import cell, print_rows


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
def test_a_cell_is_written_by_what_its_column_means(name: str, value: object, text: str) -> None:
    assert cell(name, value) == text


def test_empty_columns_are_left_out_and_wide_letters_keep_the_lines_straight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"cluster": "集群", "broker": None, "unplanned": 3}, {"cluster": "c", "broker": None, "unplanned": 12}]
    print_rows(("cluster", "broker", "unplanned"), rows)
    assert capsys.readouterr().out.splitlines() == ["CLUSTER  UNPLANNED", "集群             3", "c               12"]


def test_no_rows_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("cluster",), [])
    assert capsys.readouterr().out == "(no rows)\n"
