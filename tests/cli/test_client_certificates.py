"""Commands that reach a service which demands client certificates, with the files of `routebook certs`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from routebook.cli.main import run
from tests.runtime.running import Running

VARIABLES = ("ROUTEBOOK_URL", "ROUTEBOOK_CACERT", "ROUTEBOOK_CERT", "ROUTEBOOK_KEY", "ROUTEBOOK_TOKEN", "SSL_CERT_FILE")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs") / "tls"
    assert run(["certs", "--out", str(folder), "--client", "ops", "--client", "other"]) == 0
    return folder


@pytest.fixture(scope="module")
def url(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = {
        "tls-mode": "enforcing",
        "tls-test-mode": "false",
        "tls-key-path": files / "server.key",
        "tls-cert-path": files / "server.pem",
        "tls-auth-client": "true",
        "tls-need-client-auth": "require",
        "tls-trust-path": files / "ca.pem",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with Running("up", *words, folder=tmp_path_factory.mktemp("service")) as service:
        yield "https://" + service.http.partition("://")[2]


def options(files: Path, name: str = "ops") -> list[str]:
    words = {"--cacert": "ca.pem", "--cert": f"{name}.pem", "--key": f"{name}.key"}
    return [word for option, file in words.items() for word in (option, str(files / file))]


def test_commands_present_a_certificate(url: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tls = ["--url", url, *options(files)]
    assert run(["status", "--json", *tls]) == 0
    assert json.loads(capsys.readouterr().out)["version"] >= 0
    # These commands have an argument called KEY as well.
    assert run(["kv", "put", "ns", "a-key", "a-value", *tls]) == 0
    capsys.readouterr()
    assert run(["kv", "get", "ns", "a-key", *tls]) == 0
    assert capsys.readouterr().out == "a-value\n"


def test_variables_name_the_files(
    url: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUTEBOOK_URL", url)
    monkeypatch.setenv("ROUTEBOOK_CACERT", str(files / "ca.pem"))
    monkeypatch.setenv("ROUTEBOOK_CERT", str(files / "ops.pem"))
    monkeypatch.setenv("ROUTEBOOK_KEY", str(files / "ops.key"))
    assert run(["kv", "put", "ns", "of-variables", "x"]) == 0
    capsys.readouterr()
    run(["doctor", "--json"])
    found = {one["subject"]: one for one in json.loads(capsys.readouterr().out)}
    assert "answers at" in found["service"]["message"]
    # An option replaces the pair of the variables, not half of it.
    assert run(["status", "--cert", str(files / "other.pem")]) == 2
    assert "other.pem" in capsys.readouterr().err


def test_without_a_certificate_the_advice_names_the_options(
    url: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--url", url, "--cacert", str(files / "ca.pem")]) == 3
    assert "--cert and --key" in capsys.readouterr().err
    assert run(["status", "--url", url, *options(files)[2:]]) == 3
    assert "--cacert" in capsys.readouterr().err


def test_the_certificate_and_key_can_be_in_one_file(url: str, files: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text((files / "ops.pem").read_text() + (files / "ops.key").read_text())
    assert run(["status", "--url", url, "--cacert", str(files / "ca.pem"), "--cert", str(both)]) == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cacert", "absent.pem"], "absent.pem cannot be read: No such file"),
        (["--cert", "absent.pem", "--key", "ops.key"], "absent.pem cannot be read: No such file"),
        (["--cert", "ops.pem", "--key", "absent.key"], "absent.key cannot be read: No such file"),
        (["--key", "ops.key"], "ops.key) without a certificate"),
        (["--cert", "ops.pem"], "ops.pem: no client certificate with its key"),
        (["--cert", "ops.pem", "--key", "other.key"], "no client certificate with its key"),
        (["--cacert", "ops.key"], "ops.key holds no certificates"),
    ],
)
def test_unusable_files_are_wrong_usage(
    files: Path,
    words: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    assert run(["status", "--url", "https://127.0.0.1:1", *words]) == 2
    assert expected in capsys.readouterr().err


def test_doctor_refuses_unusable_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json", "--url", "https://127.0.0.1:1", "--cacert", "absent.pem"]) == 2
    printed = capsys.readouterr()
    assert "absent.pem" in printed.err
    assert not printed.out
