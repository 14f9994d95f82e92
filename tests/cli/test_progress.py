"""Progress is shown on a terminal only."""

import sys

import pytest

from routebook.cli.output import ProgressLine

ERASE_LINE = "\x1b[2K"


def test_a_terminal_shows_one_line_that_is_erased_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressLine() as line:
        line.show_routes("127.0.0.1:9876", 1, 3000)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "127.0.0.1:9876: 1 of 3000 routes" in printed.err
    assert printed.err.endswith(ERASE_LINE)


def test_a_pipe_receives_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as line:
        line.show("imported", "1 of 2 parts")
    assert capsys.readouterr().err == ""
