"""How far a long run has come: on a terminal, and nowhere else."""

import sys

import pytest

from routebook.cli.progress import ProgressLine


def test_a_terminal_sees_one_line_that_is_taken_away_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressLine() as line:
        line.routes_of("127.0.0.1:9876", 1, 3000)
    said = capsys.readouterr()
    assert said.out == ""
    assert "127.0.0.1:9876: 1 of 3000 routes" in said.err
    assert "\n" not in said.err
    assert said.err.endswith("\r\x1b[K")


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as line:
        line.tell("imported", "1 of 2 parts")
    assert capsys.readouterr().err == ""
