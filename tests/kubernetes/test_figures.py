"""The table of figures lists scenarios that did not run. These tests need no cluster."""

import json
from pathlib import Path

import pytest

from tests.kubernetes import figures


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A figures file of its own, with strict mode off."""
    file = tmp_path / "figures.json"
    monkeypatch.setenv(figures.FILE_VARIABLE, str(file))
    monkeypatch.delenv(figures.STRICT_VARIABLE, raising=False)
    figures.reset()
    return file


def test_a_scenario_that_cannot_run_is_skipped_and_listed(recorded: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no image"):
        figures.not_run("nightly job", "there is no image")

    assert "| nightly job | NOT RUN | there is no image |" in figures.as_markdown(json.loads(recorded.read_text()))
    assert figures.scenarios_not_run() == {"nightly job": "there is no image"}


def test_strict_mode_fails_instead_of_skipping(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(figures.STRICT_VARIABLE, "1")

    # Expects both exceptions, because an unexpected skip would skip this test too.
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="no image") as raised:
        figures.not_run("nightly job", "there is no image")

    assert raised.type is pytest.fail.Exception
    assert "NOT RUN" in recorded.read_text()


def test_a_scenario_that_ran_later_is_not_listed(recorded: Path) -> None:
    with pytest.raises(pytest.skip.Exception):
        figures.not_run("nightly job", "there is no image")

    figures.record("nightly job", {"ended after s": 3.0})

    assert figures.scenarios_not_run() == {}
    assert "NOT RUN" not in recorded.read_text()
