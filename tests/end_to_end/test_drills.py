"""Runs the commands of `docs/drills.md` as printed, section by section, each in a folder and on ports of its own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.documents import Step, read_steps, write_redis_cli
from tests.support.ports import lasting_free_port
from tests.support.servers import find_servers
from tests.support.simulated import first_address

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 240.0
PORTS = ("9876", "8080", "8081", "8082", "8091", "8092", "9871", "9872", "6379", "6380")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("curl", "openssl"))), reason="the drills need curl and openssl on the path"
    ),
]


def sections() -> dict[str, str]:
    """Heading → text, of those with commands."""
    text = (ROOT / "docs" / "drills.md").read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a drill leaves running is killed: each process has its id in a file."""
    yield tmp_path
    for file in (tmp_path / "drill").rglob("*.pid"):
        with contextlib.suppress(ValueError, ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def programs(folder: Path) -> Path:
    """A folder with the commands that the page names: the newest server of this machine, the oldest, and a client."""
    servers = find_servers()
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "redis-server").symlink_to(servers[-1].path)
    (bin_folder / "old-redis-server").symlink_to(servers[0].path)
    write_redis_cli(bin_folder)
    return bin_folder


def replacements() -> dict[str, str]:
    ports = {port: str(lasting_free_port()) for port in PORTS}
    # The two workers of a section have ports that differ in their last digit.
    several = {f"{kind}$number": f"$(eval echo \\$PORT_{kind}_$number)" for kind in ("987", "808", "809")}
    return {**ports, **several, "127.77.0.1:10911": first_address(), "127.78.0.1:10911": first_address()}


def test_there_is_a_drill_for_each_task() -> None:
    assert list(sections()) == [
        "Restore the store from a backup",
        "Lose the store for good",
        "Move to another store",
        "Upgrade the store",
        "Renew certificates",
        "Clean up",
    ]


@pytest.mark.parametrize("heading", sections())
def test_a_drill_answers_as_printed(heading: str, folder: Path) -> None:
    replaced = replacements()
    env = {**os.environ, "PATH": f"{programs(folder)}{os.pathsep}{os.environ['PATH']}"}
    for port in ("9871", "9872", "8081", "8082", "8091", "8092"):
        env[f"PORT_{port[:-1]}_{port[-1]}"] = replaced[port]
    service = f"http://127.0.0.1:{replaced['8080']}"
    replaced[".venv/bin/routebook"] = f"{sys.executable} -m routebook"
    env["ROUTEBOOK_URL"] = service
    (folder / "drill").mkdir()
    for number, step in enumerate(read_steps(sections()[heading], replaced)):
        run(step, folder, env, number)


def run(step: Step, folder: Path, env: dict[str, str], number: int) -> None:
    output = folder / f"output-{number}"
    with output.open("w") as out:  # a pipe would stay open as long as the processes that the step starts
        done = subprocess.run(
            ["sh", "-c", step.command],
            cwd=folder,
            stdout=out,
            stderr=out,
            timeout=COMMAND_SECONDS,
            check=False,
            env=env,
        )
    text = output.read_text()
    assert done.returncode == 0, f"{step.command}exited with {done.returncode}:\n{text}"
    assert step.is_answered_by(text), f"{step.command}printed:\n{text}\ninstead of:\n{step.answer}"
