"""Runs the examples of the README as printed, in order, against a service that `routebook up` starts.

Only the ports and the data folder are replaced, since the machine may have them in use. `documents.py` describes how
the examples are marked.
"""

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.documents import Step, read_steps, run, terminal, text_matches, value_matches
from tests.support.ports import free_ports
from tests.support.simulated import first_address

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = "**What did the fleet do?**"
CLUSTER = "## On Kubernetes"
"""tests/chart/test_document.py checks the commands after this heading; they need a cluster."""
PIPELINE_SECONDS = 300.0

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the README's examples need curl")


def parts() -> tuple[str, str, str]:
    """The first ten minutes, the pipeline, and the rest."""
    first, found, rest = (ROOT / "README.md").read_text().partition(PIPELINE)
    pipeline, heading, rest = rest.partition(CLUSTER)
    assert found
    assert heading
    return first, pipeline, rest


@needs_curl
def test_the_examples_of_the_readme_answer_as_printed(tmp_path: Path) -> None:
    steps = list(read_steps(parts()[0], replacements(tmp_path)))
    assert sum(step.keeps_running for step in steps) == 2
    run_all(steps, tmp_path)


@pytest.mark.slow
def test_the_pipeline_of_the_readme_answers_about_a_simulated_fleet(tmp_path: Path) -> None:
    begin = next(read_steps(parts()[0], replaced := replacements(tmp_path)))
    in_folder = {"--lake history": f"--lake {tmp_path / 'lake'}", "report.html": str(tmp_path / "report.html")}
    # Spark is there already; what is checked is that this package has the extra.
    name_server = f"127.0.0.1:{replaced['9876']}"
    in_folder["--brokers 20"] = f"--brokers 20 --first-address {first_address()} --name-servers {name_server}"
    in_folder[".venv/bin/pip install"] = f"{sys.executable} -m pip install --dry-run --no-deps --no-build-isolation"
    steps = list(read_steps(parts()[1], {**replaced, **in_folder, "--duration 1m": "--duration 15s"}))
    assert len(steps) == 2
    run_all([begin, *steps], tmp_path)
    assert "<html" in (tmp_path / "report.html").read_text()


def run_all(steps: list[Step], folder: Path) -> None:
    with ExitStack() as terminals:
        for number, step in enumerate(steps):
            if step.keeps_running:
                terminals.enter_context(terminal(step, folder / f"terminal-{number}", ROOT, os.environ))
            else:
                run(step, ROOT, os.environ, PIPELINE_SECONDS)


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
