"""Runs the examples of the README as printed, in order, against a service that `routebook up` starts.

Only the ports and the data folder are replaced, since the machine may have them in use. `documents.py` describes how
the examples are marked.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.documents import Step, read_steps, text_matches, value_matches
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 20.0
COMMAND_SECONDS = 60.0


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's examples need curl")
def test_the_examples_of_the_readme_answer_as_printed(tmp_path: Path) -> None:
    steps = list(read_steps((ROOT / "README.md").read_text(), replacements(tmp_path)))
    assert sum(step.keeps_running for step in steps) == 2
    with ExitStack() as terminals:
        for number, step in enumerate(steps):
            if step.keeps_running:
                terminals.enter_context(terminal(step, tmp_path / f"terminal-{number}"))
            else:
                run(step)


def replacements(folder: Path) -> dict[str, str]:
    """Text of the README → its replacement. `make up` itself does nothing else after the installation."""
    routebook = f"{sys.executable} -m routebook"
    ports = dict(zip(("9876", "9877", "8080", "8081", "8090", "8091"), map(str, free_ports(6)), strict=True))
    service = f"http://127.0.0.1:{ports['8080']}"
    ports_flags = f"--remoting-port {ports['9876']} --http-port {ports['8080']} --admin-port {ports['8081']}"
    flags = f"{ports_flags} --data-dir {folder / 'data'}"
    return {
        **ports,
        "```sh terminal\nmake up": f"```sh terminal\nexec {routebook} up {flags}",
        "```sh terminal\n.venv/bin/routebook serve": f"```sh terminal\nexec {routebook} serve",
        ".venv/bin/routebook": f"ROUTEBOOK_URL={service} {routebook}",
    }


@contextmanager
def terminal(step: Step, folder: Path) -> Iterator[None]:
    folder.mkdir()
    output, log = folder / "output", folder / "log"
    with output.open("w") as out, log.open("w") as errors:
        process = subprocess.Popen(["sh", "-c", step.command], cwd=ROOT, stdout=out, stderr=errors)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not step.is_answered_by(output.read_text()):
            assert process.poll() is None, f"{step.command}exited:\n{output.read_text()}{log.read_text()}"
            assert time.monotonic() < deadline, f"{step.command}printed:\n{output.read_text()}{log.read_text()}"
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            exit_code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert exit_code == 0, log.read_text()


def run(step: Step) -> None:
    done = subprocess.run(
        ["sh", "-c", step.command], cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert done.returncode == 0, f"{step.command}exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert step.is_answered_by(done.stdout), f"{step.command}printed:\n{done.stdout}\ninstead of:\n{step.answer}"


# A wrong example is found


def test_json_may_differ_only_where_the_document_allows_it() -> None:
    shown = {"version": "…", "route": {"perm": 6}, "members": [1, "…"]}
    assert value_matches(shown, {"version": 7, "route": {"perm": 6}, "members": [1, 2]})
    assert not value_matches(shown, {"version": 7, "route": {"perm": 4}, "members": [1, 2]})
    assert not value_matches(shown, {"version": 7, "route": {"perm": 6}, "members": [1]})
    assert not value_matches(shown, {"version": 7, "route": {"perm": 6}, "members": [1, 2], "more": None})


def test_text_is_compared_line_by_line() -> None:
    shown = "NAME   VALUE\na      …\n…\nend\n"
    assert text_matches(shown, "NAME VALUE\na 17\nanything\nat all\nend")
    assert text_matches(shown, "NAME VALUE\na 17\nend")
    assert not text_matches(shown, "NAME VALUE\nb 17\nend")
    assert not text_matches(shown, "NAME VALUE\na 17\nend\nmore")


def test_blocks_become_steps_in_order() -> None:
    document = (
        "```sh terminal\nmake up\n```\n\n```text\nup\n```\n\n```sh\ncurl x\n```\n\n```json\n{}\n```\n\n```sh\nls\n```\n"
    )
    assert list(read_steps(document, {"curl": "wget"})) == [
        Step("make up\n", True, "up\n"),
        Step("wget x\n", False, "{}\n", True),
        Step("ls\n", False, None),
    ]
