"""Commands, exit codes, completion."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from routebook import __version__, errors
from routebook.cli import main
from routebook.cli.main import run
from routebook.runtime import exits
from tests.support.pipes import pipe_without_reader


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    promised = "up serve route topics brokers clusters watch kv write-permission delete-topic expiry settings"
    for command in [
        *promised.split(),
        "remove-broker",
        "register-topic",
        "readers",
        "context",
        "status",
        "doctor",
        "digest",
        "simulate",
        "pipeline",
    ]:
        assert f"\n  {command} " in shown
    assert "worker-process" not in shown
    assert "..." not in shown.partition("Commands:")[2], "a sentence about a command is cut off"


@pytest.mark.parametrize("arguments", [["nonsense"], ["route"], ["status", "--nonsense"], ["kv", "put", "a"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Error" in capsys.readouterr().err


def test_every_setting_is_a_flag_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert "--scan-not-active-broker-interval-ms" in shown
    assert "[10000]" in shown


@pytest.mark.parametrize("found", [[], [EntryPoint("pipeline", "not_installed_here:command", main.COMMAND_GROUP)]])
def test_the_command_of_a_missing_package_says_how_to_install_it(
    found: list[EntryPoint], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "entry_points", lambda group: found)
    assert run(["pipeline", "run", "--whatever"]) == 2
    assert "pip install 'routebook[pipeline]'" in capsys.readouterr().err


def test_a_command_of_another_package_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installing a real package would prove no more."""
    entry = EntryPoint("pipeline", "tests.cli.test_main:plugged_in", main.COMMAND_GROUP)
    monkeypatch.setattr(main, "entry_points", lambda group: [entry] if group == main.COMMAND_GROUP else [])
    assert run(["pipeline"]) == 0
    assert capsys.readouterr().out == "plugged in\n"


@click.command("pipeline")
def plugged_in() -> None:
    click.echo("plugged in")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFoundError("topic", "T"), 1),
        (errors.RefusedError("no"), 1),
        (errors.ForbiddenError("no"), 1),
        (errors.SettingsError("wrong"), 2),
        (errors.InvalidInputError("field", "value", "other values"), 2),
        (errors.StoreUnavailableError("away"), 3),
        (errors.NotReadyError("not yet"), 3),
        (exits.HistoryMissingError("trimmed"), 4),
    ],
)
def test_errors_have_the_exit_codes_of_the_contract(error: errors.RoutebookError, code: int) -> None:
    assert exits.exit_code_of(error) == code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_ROUTEBOOK_COMPLETE" in capsys.readouterr().out


def test_completion_completes() -> None:
    environ = {**os.environ, "_ROUTEBOOK_COMPLETE": "bash_complete", "COMP_WORDS": "routebook exp", "COMP_CWORD": "1"}
    script = Path(sys.executable).with_name("routebook")
    done = subprocess.run([script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,expiry\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("serve", "-p"), 0),
        (("route", "--help"), 0),
        (("pipeline", "--help"), 0),
        (("pipeline", "run", "--help"), 0),
        (("pipeline", "doctor"), 0),
        (("nonsense",), 2),
        (("route", "T"), 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_closed_pipe_is_not_an_error(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    """An error that a command reports keeps its exit code."""
    command = [sys.executable, "-m", "routebook", *arguments]
    environ = {**os.environ, "ROUTEBOOK_URL": "http://127.0.0.1:1", "ROUTEBOOK_REDIS_URL": "redis://127.0.0.1:1"}
    with pipe_without_reader() as pipe:
        done = subprocess.run(
            command, env=environ, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
        assert (done.returncode, "BrokenPipe" in done.stderr) == (code, False), done.stderr
        done = subprocess.run(command, env=environ, stdout=pipe, stderr=pipe, text=True, check=False, cwd=tmp_path)
        assert done.returncode == code
