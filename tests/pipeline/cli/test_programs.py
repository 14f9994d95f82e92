"""The commands as a program of their own, without the service: as `spark-submit` and `python -m` run it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from routebook_pipeline.local_files import PROGRAM
from tests.support.pipes import pipe_without_reader

UNREACHABLE = "redis://127.0.0.1:1"
TIMEOUT_S = 60.0

BothPrograms = pytest.mark.parametrize(
    "program", [(str(PROGRAM),), ("-m", "routebook_pipeline")], ids=["submit.py", "python -m"]
)


def start(
    program: tuple[str, ...], *arguments: str, store: str = UNREACHABLE, **environment: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        env={**os.environ, "ROUTEBOOK_REDIS_URL": store, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: tuple[str, ...], *arguments: str, **environment: str) -> tuple[int, str, str]:
    with start(program, *arguments, **environment) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out, err


@BothPrograms
def test_the_exit_code_is_what_the_command_returns(program: tuple[str, ...]) -> None:
    code, out, _ = run(program, "doctor")
    assert "ERROR" in out
    assert code == 3, "the store is unreachable"


@BothPrograms
def test_errors_have_their_exit_codes(program: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = run(program, "export", "--out", str(tmp_path / "changes.jsonl"))
    assert (code, out) == (3, "")
    assert err.startswith("Error: ")
    code, out, err = run(program, "export", "--nonsense")
    assert (code, out) == (2, "")
    assert "No such option" in err


@BothPrograms
def test_ctrl_c_ends_with_130_and_prints_no_answer(program: tuple[str, ...], tmp_path: Path) -> None:
    """While the command waits for a store that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        store = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with start(program, "export", "--out", str(tmp_path / "changes.jsonl"), store=store) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@BothPrograms
@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("run --help", 0), ("doctor", 0), ("nonsense", 2)])
def test_a_closed_pipe_is_no_error(program: tuple[str, ...], arguments: str, code: int) -> None:
    """`… | head -1`; an error in the command line keeps its exit code."""
    command = [sys.executable, *program, *arguments.split()]
    environ = {**os.environ, "ROUTEBOOK_REDIS_URL": UNREACHABLE}
    with pipe_without_reader() as pipe:
        done = subprocess.run(command, env=environ, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "BrokenPipe" in done.stderr) == (code, False), done.stderr
        assert subprocess.run(command, env=environ, stdout=pipe, stderr=pipe, check=False).returncode == code


def test_the_master_is_refused_under_spark_submit(tmp_path: Path) -> None:
    """Java is running already, so the option would be ignored."""
    words = ("ingest", "--master", "local[1]", "--lake", str(tmp_path))
    code, _, err = run((str(PROGRAM),), *words, PYSPARK_GATEWAY_PORT="1")
    assert code == 2
    assert "--master would be ignored: under spark-submit" in err
