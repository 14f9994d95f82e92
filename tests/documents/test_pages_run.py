"""Every block that a page shows for pasting runs: here, or in the test of its page that `TESTED_BY` names.

Here, the commands of a page run in order, in a folder of their own, against two workers on one store (`fleet.py`), and
only addresses, folders of the host and times are replaced. `NOT_HERE` names each command that cannot run, with the
reason. A command that is in neither place fails the test, and so does an entry whose command is gone.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.documents.fleet import Fleet, run_script
from tests.documents.shell_blocks import Block, blocks, commands_of

INTERRUPTED_AFTER_S = 4
COMMAND_S = 900
"""`pipeline nightly` took more than 300 s beside 25 busy processes."""

RUN_HERE = (
    "docs/changes.md",
    "docs/command-line.md",
    "docs/console.md",
    "docs/help.md",
    "docs/lake.md",
    "docs/metrics.md",
    "docs/migration.md",
    "docs/operations.md",
    "docs/pipeline-commands.md",
    "docs/pipeline.md",
    "docs/reference/commands.md",
    "docs/runbook.md",
    "docs/simulate.md",
    "docs/systemd.md",
    "docs/tls.md",
    "docs/upgrade.md",
    "docs/walkthroughs/register_a_broker.md",
)
QUICK = {"docs/command-line.md"}
"""Pages of the default lane; the others are slow."""
SPARK = {"docs/pipeline-commands.md", "docs/pipeline.md", "docs/lake.md"}
"""The lake has the changes of the fleet before the first command."""

TESTED_BY = {
    "README.md": "tests/end_to_end/test_readme.py",
    "docs/client.md": "tests/client/test_documented.py",
    "docs/compose.md": "tests/image/test_compose.py",
    "docs/daily-tasks.md": "tests/end_to_end/test_daily_tasks.py",
    "docs/drills.md": "tests/end_to_end/test_drills.py",
    "docs/http-api.md": "tests/http_api/test_guide.py",
    "docs/kubernetes.md": "tests/chart/documented.py",
}

FIGURES = "prints figures of a machine that does nothing else, for minutes"
OWN_LANE = "is a lane of its own, of minutes to an hour"
SUPERUSER = "changes the packages and accounts of this machine"
INIT = "needs systemd as the first process of the machine; tests/documents/test_systemd.py runs the unit's command line"
CLUSTER = "needs the cluster and the release of docs/kubernetes.md, which `make cluster-test` installs"
IMAGE = "needs an engine and minutes for the images; tests/image builds and runs them with these options"
APACHE = "needs RocketMQ's programs; tests/conformance/test_migration.py runs this step with them"
OBJECT_STORE = (
    "needs Spark's connector for object stores (0.7 GB), with which tests/pipeline/cli/test_object_store.py runs"
)
FISH = "`source` without a file is a command of fish; tests/cli/test_completion.py checks the script"
NOT_HERE = {
    ("docs/balancing.md", ".venv/bin/python -m pytest"): "is a test itself, which `make test-all` runs",
    ("docs/benchmarks/console.md", ".venv/bin/python -m benchmarks.console"): FIGURES,
    ("docs/benchmarks/heartbeat-cost.md", ".venv/bin/python -m benchmarks.heartbeat_cost"): FIGURES,
    ("docs/benchmarks/lookups.md", ".venv/bin/python -m benchmarks.attacked_lookups"): FIGURES,
    ("docs/benchmarks/lookups.md", ".venv/bin/python -m benchmarks.lookups"): FIGURES,
    ("docs/benchmarks/lookups.md", ".venv/bin/python -m benchmarks.signed_lookups"): FIGURES,
    ("docs/capacity.md", ".venv/bin/python -m benchmarks.capacity"): FIGURES,
    ("docs/command-line.md", "routebook completion fish"): FISH,
    (
        "docs/console.md",
        "ROUTEBOOK_TEST_SCREENSHOTS=",
    ): "is a test itself, and it would draw the pictures of the page anew",
    ("docs/image.md", "docker run"): IMAGE,
    ("docs/image.md", "docker build"): IMAGE,
    ("docs/lake.md", "routebook pipeline ingest --once --lake s3://"): OBJECT_STORE,
    ("docs/lake.md", "mvn"): OBJECT_STORE,
    ("docs/lake.md", "pip install --target moto"): OBJECT_STORE,
    ("docs/lake.md", "PYTHONPATH=moto"): OBJECT_STORE,
    ("docs/migration.md", "mqadmin"): APACHE,
    ("docs/migration.md", "mqnamesrv"): APACHE,
    ("docs/model/README.md", "make model"): OWN_LANE,
    ("docs/reference/commands.md", "routebook completion fish"): FISH,
    ("docs/reliability.md", "make chaos"): OWN_LANE,
    ("docs/reliability.md", ".venv/bin/python -m tests.faults.failover_losses"): OWN_LANE,
    ("docs/runbook.md", "kubectl"): CLUSTER,
    ("docs/simulation.md", "make simulate-faults"): OWN_LANE,
    ("docs/simulation.md", ".venv/bin/python -m tests.simulation --replay"): "tests/simulation replays seeds",
    ("docs/soak.md", "make soak"): OWN_LANE,
    ("docs/systemd.md", "useradd"): SUPERUSER,
    ("docs/systemd.md", "apt-get"): SUPERUSER,
    ("docs/systemd.md", "install -m 0660 -o redis"): "needs the user that Debian's package of Redis makes",
    ("docs/systemd.md", "systemctl"): INIT,
    ("docs/systemd.md", "journalctl"): INIT,
    ("docs/walkthroughs/answer_a_lookup.md", ".venv/bin/python -m benchmarks.lookups"): FIGURES,
    ("tests/kubernetes/README.md", "eval"): CLUSTER,
    ("tests/kubernetes/README.md", ".venv/bin/python -m tests.kubernetes.cluster"): CLUSTER,
    ("tests/kubernetes/README.md", "helm"): CLUSTER,
}

ENDLESS = re.compile(
    r"BLOCK 0|--follow|--refresh|curl -N|routebook watch|routebook top(?: --interval 10s|$)|--clients 50$"
)
SERVES = re.compile(r"^\S*routebook (?:up|serve)\b(?!.* -p)", re.MULTILINE)
PREPARES = re.compile(r"^export |^\w+=\S*\$\(|&$")
"""Lines without an answer of their own. They run before each later command of their block."""
MAY_SAY_NO = re.compile(r"routebook (?:doctor|compare|digest|pipeline nightly|pipeline \S+ --fail|pipeline run)\b")
"""Exit code 1 is their answer "no", and depends on the machine: a doctor's finding, an objective that was missed."""
INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    block: Block
    text: str

    @property
    def reason_against(self) -> str | None:
        """Why it cannot run here."""
        found = (reason for (page, start), reason in NOT_HERE.items() if self.is_named_by(page, start))
        return next(found, None)

    def is_named_by(self, page: str, start: str) -> bool:
        return self.block.page == page and self.text.startswith(start)

    def missing(self, path: str) -> str | None:
        """A program or module that this machine lacks."""
        if self.block.language == "python":
            modules = re.findall(r"^(?:from|import) (\w+)", self.text, re.MULTILINE)
            return next((module for module in modules if find_spec(module) is None), None)
        programs = [words[0] for words in commands_of(self.text)]
        programs += ["chromium"] if "tests.support.chromium" in self.text else []
        own = re.compile(r"\.venv/|/opt/|(?:pip|eval|export|source|until)$")
        return next((one for one in programs if not own.match(one) and not shutil.which(one, path=path)), None)


def pasted() -> Iterator[Block]:
    return (block for block in blocks() if block.language in {"sh", "console", "python"})


def commands_in(block: Block) -> list[Command]:
    """One for each line. A command on several lines is one, and a program in Python too."""
    if block.language == "python":
        return [Command(block, block.body)]
    lines = block.body.replace("\\\n", " ").splitlines()
    return [Command(block, line) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("page", sorted({block.page for block in pasted()}))
def test_each_command_of_a_page_runs_somewhere_or_has_a_reason(page: str) -> None:
    if page in RUN_HERE or page in TESTED_BY:
        return
    commands = [one for block in pasted() if block.page == page for one in commands_in(block)]
    assert [one.text for one in commands if one.reason_against is None] == []


@pytest.mark.parametrize(("page", "start"), NOT_HERE)
def test_each_reason_is_about_a_command_of_its_page(page: str, start: str) -> None:
    assert any(one.is_named_by(page, start) for block in pasted() for one in commands_in(block))


@pytest.mark.parametrize(("page", "test"), TESTED_BY.items())
def test_the_test_of_a_page_reads_the_page(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / test).read_text()


def test_every_page_with_a_test_shows_a_command() -> None:
    assert {*RUN_HERE, *TESTED_BY} <= {block.page for block in pasted()}


@pytest.fixture
def fleet(store_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    page = re.sub(r"\W", "-", request.node.callspec.params["page"])
    with Fleet(store_url, f"t-{page}-{os.getpid()}", tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize(
    "page", [page if page in QUICK else pytest.param(page, marks=pytest.mark.slow) for page in RUN_HERE]
)
def test_the_commands_of_a_page_run(page: str, fleet: Fleet) -> None:
    left_out: list[str] = []
    if page in SPARK:
        fleet.restore("")
        ingested = run_script("routebook pipeline ingest --once", fleet, seconds=COMMAND_S)
        assert ingested.returncode == 0, ingested.stderr
    for block in (block for block in pasted() if block.page == page):
        fleet.restore(block.body)
        left_out += run_block(block, fleet)
    if left_out:
        pytest.skip(f"all but these ran, for which this machine has no program: {'; '.join(left_out)}")


def run_block(block: Block, fleet: Fleet) -> list[str]:
    """Returns the commands that were left out."""
    left_out: list[str] = []
    before = ""
    for command in commands_in(block):
        missing = command.missing(fleet.env["PATH"])
        if command.reason_against:
            continue
        if missing:
            left_out.append(f"{block.name} ({missing})")
        elif block.language == "sh" and PREPARES.search(command.text):
            before += f"{fleet.script(command.text)}\n"
        elif command.text == "make demo":
            fleet.demonstrate(fleet.script(command.text))
        elif block.language == "sh" and SERVES.search(command.text):
            fleet.serve(before + fleet.script(command.text))
        else:
            run_command(command, before, fleet)
    return left_out


def run_command(command: Command, before: str, fleet: Fleet) -> None:
    script = fleet.script(command.text)
    if command.block.language == "python":
        (fleet.folder / "example.py").write_text(script)
        script = "python example.py"
    if before:
        script = f"{before}{script}\ncode=$?\nkill $(jobs -p) 2> errors && wait\nexit $code"
    is_endless = ENDLESS.search(command.text) is not None
    done = run_script(script, fleet, seconds=COMMAND_S, interrupted_after=INTERRUPTED_AFTER_S if is_endless else None)
    allowed = {0} | ({1} if MAY_SAY_NO.search(command.text) else set()) | ({INTERRUPTED} if is_endless else set())
    output = f"{done.stdout}{done.stderr}"
    assert done.returncode in allowed, f"{command.block.name}: {script}\nexit code {done.returncode}\n{output}"
