"""One service for all tests of the command line, in its own namespace."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from routebook.cli.main import run
from tests.runtime.running import Running


@pytest.fixture(scope="session")
def service(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("cli-service")
    name = f"t-cli-{secrets.token_hex(6)}"
    flags = ("--redis-url", store_url, "--namespace", name, "--bind-address", "127.0.0.1")
    with Running("serve", *flags, folder=folder) as running:
        yield running
        running.stop()


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def contexts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands under test must not use the contexts of the person who runs the tests."""
    file = tmp_path / "config" / "contexts.toml"
    monkeypatch.setenv("ROUTEBOOK_CONTEXTS", str(file))
    for variable in ("ROUTEBOOK_CONTEXT", "ROUTEBOOK_URL", "ROUTEBOOK_TOKEN", "ROUTEBOOK_ADMIN_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return file


class CommandLine:
    """Runs a command in this process, as `routebook` would."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str) -> None:
        self._capsys = capsys
        self._url = url

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        code = run([*arguments, "--url", self._url])
        printed = self._capsys.readouterr()
        return Ended(code, printed.out, printed.err)


@pytest.fixture
def routebook(service: Running, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    port = service.http.rpartition(":")[2]
    return CommandLine(capsys, f"http://127.0.0.1:{port}")


@pytest.fixture
def nowhere(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """A command line without a service."""
    return CommandLine(capsys, "http://127.0.0.1:1")
