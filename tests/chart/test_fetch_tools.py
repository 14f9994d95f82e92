"""What `make chart` does where the wheels have no Helm for the machine."""

import platform
from pathlib import Path

import pytest

from tests.chart import tools
from tests.chart.fetch_tools import HELM_VARIABLE, main


@pytest.fixture(autouse=True)
def another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The one part that cannot be had here."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.delenv(HELM_VARIABLE, raising=False)
    (tmp_path / "wheels").mkdir()


@pytest.mark.parametrize("named", ["", "/opt/helm3", "/opt/helm3:"])
def test_says_which_variable_names_both(named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HELM_VARIABLE, named)
    with pytest.raises(SystemExit, match=f"{tools.HELM_VARIABLE}=/path/to/helm3:/path/to/helm4"):
        main(tmp_path)


def test_goes_on_with_those_that_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else whoever does what it says is told the same for ever."""
    monkeypatch.setenv(tools.HELM_VARIABLE, "/opt/helm3:/opt/helm4")
    main(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "wheels"]
