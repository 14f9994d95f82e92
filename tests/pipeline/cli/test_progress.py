"""The progress of a command: the current step on a terminal, log lines everywhere."""

import sys
import threading
from typing import Any

import pytest

from routebook_pipeline.cli.ingest import Refresher
from routebook_pipeline.cli.progress import Progress

ERASE_LINE = "\x1b[2K"


def test_a_log_gets_only_the_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.show("starting Spark")
        progress.log("snapshot of 2026-05-01")
        progress.clear()
        progress.log("done")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "snapshot of 2026-05-01\ndone\n")


def test_a_terminal_shows_the_current_step_until_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    line = "[bold] " + "a long line " * 30
    with Progress() as progress:
        progress.show("opening the lake")
        progress.show("starting Spark (local[2])")
        progress.log(line)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "opening the lake" in printed.err
    assert "starting Spark (local[2])" in printed.err
    assert "0:00:00" in printed.err
    assert f"{line}\n" in printed.err, "a log line was wrapped or changed"
    assert printed.err.rstrip().endswith(ERASE_LINE)


def test_batches_do_not_wait_for_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish, number = threading.Event(), threading.Event(), []

    def refresh(_: Refresher) -> None:
        number.append(1)
        started.set()
        assert finish.wait(60)

    monkeypatch.setattr(Refresher, "_refresh", refresh)
    stop: Any = threading.Event()
    unused: Any = None
    refresher = Refresher(unused, unused, unused, Progress(), stop, period_s=0)
    refresher.refresh_if_due()
    assert started.wait(60)
    refresher.refresh_if_due()
    assert len(number) == 1, "the first one still runs"
    stop.set()
    finish.set()
    refresher.finish()
    assert len(number) == 1, "an ingest that is to stop does not refresh again"
