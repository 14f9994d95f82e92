"""The commands as programs of their own, without the service's: what `spark-submit` runs, and `python -m`."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from routebook_pipeline.local_files import PROGRAM
from tests.support.pipes import pipe_without_reader

NOBODY = "redis://127.0.0.1:1"
PATIENCE_S = 60.0

Each = pytest.mark.parametrize(
    "program", [(str(PROGRAM),), ("-m", "routebook_pipeline")], ids=["submit.py", "python -m"]
)


def started(
    program: tuple[str, ...], *arguments: str, store: str = NOBODY, **environment: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        env={**os.environ, "ROUTEBOOK_REDIS_URL": store, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(program: tuple[str, ...], *arguments: str, **environment: str) -> tuple[int, str, str]:
    with started(program, *arguments, **environment) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err


@Each
def test_what_a_command_returns_is_the_exit_code(program: tuple[str, ...]) -> None:
    code, out, _ = ended(program, "doctor")
    assert "ERROR" in out
    assert code == 3, "nobody is at the store's address"


@Each
def test_errors_of_ours_and_of_usage_keep_their_codes(program: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = ended(program, "export", "--out", str(tmp_path / "changes.jsonl"))
    assert (code, out) == (3, "")
    assert err.startswith("Error: ")
    code, out, err = ended(program, "export", "--nonsense")
    assert (code, out) == (2, "")
    assert "No such option" in err


@Each
def test_ctrl_c_is_130_and_says_no_answer(program: tuple[str, ...], tmp_path: Path) -> None:
    """While it waits for a store that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        store = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with started(program, "export", "--out", str(tmp_path / "changes.jsonl"), store=store) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@Each
@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("run --help", 0), ("doctor", 0), ("nonsense", 2)])
def test_a_closed_pipe_is_no_error(program: tuple[str, ...], arguments: str, code: int) -> None:
    """`… | head -1`; an error in the command line keeps its exit code."""
    command = [sys.executable, *program, *arguments.split()]
    environ = {**os.environ, "ROUTEBOOK_REDIS_URL": NOBODY}
    with pipe_without_reader() as pipe:
        done = subprocess.run(command, env=environ, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "BrokenPipe" in done.stderr) == (code, False), done.stderr
        assert subprocess.run(command, env=environ, stdout=pipe, stderr=pipe, check=False).returncode == code


def test_the_master_of_spark_submit_is_named_to_spark_submit(tmp_path: Path) -> None:
    """It has started Java by then: the command's option would be ignored."""
    words = ("ingest", "--master", "local[1]", "--lake", str(tmp_path))
    code, _, err = ended((str(PROGRAM),), *words, PYSPARK_GATEWAY_PORT="1")
    assert code == 2
    assert "--master would be ignored: under spark-submit" in err
