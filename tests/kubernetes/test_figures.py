"""The table says what was not run. Runs without a cluster."""

import json
from pathlib import Path

import pytest

from tests.kubernetes import figures


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Figures of a run of its own, in which nothing is strict."""
    file = tmp_path / "figures.json"
    monkeypatch.setenv(figures.FILE_VARIABLE, str(file))
    monkeypatch.delenv(figures.STRICT_VARIABLE, raising=False)
    figures.begin()
    return file


def test_a_scenario_that_cannot_run_is_skipped_and_stands_in_the_table(kept: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no image"):
        figures.not_run("nightly job", "there is no image")

    assert "| nightly job | NOT RUN | there is no image |" in figures.as_markdown(json.loads(kept.read_text()))
    assert figures.left_out() == {"nightly job": "there is no image"}


def test_it_fails_where_nothing_may_be_skipped(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(figures.STRICT_VARIABLE, "1")

    # Of both: one that is skipped all the same would skip this test, too.
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="no image") as told:
        figures.not_run("nightly job", "there is no image")

    assert told.type is pytest.fail.Exception
    assert "NOT RUN" in kept.read_text()


def test_what_ran_after_all_is_not_left_out(kept: Path) -> None:
    with pytest.raises(pytest.skip.Exception):
        figures.not_run("nightly job", "there is no image")

    figures.tell("nightly job", {"ended after s": 3.0})

    assert figures.left_out() == {}
    assert "NOT RUN" not in kept.read_text()
