"""What `make chart` does on machines for which the wheels contain no Helm."""

import platform
from pathlib import Path

import pytest

from tests.chart import tools
from tests.chart.fetch_tools import HELM_VARIABLE, main


@pytest.fixture(autouse=True)
def unsupported_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pretends to be an ARM machine."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.delenv(HELM_VARIABLE, raising=False)
    (tmp_path / "wheels").mkdir()


@pytest.mark.parametrize("named", ["", "/opt/helm3", "/opt/helm3:"])
def test_the_error_names_the_variable_to_set(named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HELM_VARIABLE, named)
    with pytest.raises(SystemExit, match=f"{tools.HELM_VARIABLE}=/path/to/helm3:/path/to/helm4"):
        main(tmp_path)


def test_two_given_helm_binaries_are_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Following the advice of the error message must work."""
    monkeypatch.setenv(tools.HELM_VARIABLE, "/opt/helm3:/opt/helm4")
    main(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "wheels"]
