"""README.md and docs/kubernetes.md name only values that exist, and their commands work as shown."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import routebook
from tests.chart.chart_values import chart_values
from tests.chart.documented import PAGES, Block, Command, blocks, commands, inline_commands
from tests.chart.objects import read, single
from tests.chart.rendering import CHART, run
from tests.chart.tools import HELMS

TEXTS = {page.name: page.read_text() for page in PAGES}
COMMANDS = commands()
BLOCKS = [block for block in blocks() if any(line.startswith(("kubectl ", "helm ")) for line in block.lines)]
CLUSTER_WIDE_COMMANDS = {"get storageclass", "create namespace", "taint nodes", "delete node", "drain NODE"}
DECLARED = {found.name: found for found in chart_values()}
TOP_LEVEL = {name.partition(".")[0] for name in DECLARED}


def is_value(name: str) -> bool:
    """Whether this names a value, a group of values, or a key inside a mapping that is passed on unchanged."""
    parts = name.split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    stem = next((stem for stem in stems if stem in DECLARED), None)
    return stem is not None and (stem == name or not DECLARED[stem].is_group)


@pytest.mark.parametrize(("page", "minimum"), [("README.md", 2), ("kubernetes.md", 10)])
def test_every_value_set_by_a_command_exists(page: str, minimum: int) -> None:
    names = set(re.findall(r"--set(?:-string)? '?([\w.]+)=", TEXTS[page]))
    assert len(names) >= minimum
    assert {name for name in names if not is_value(name)} == set()


def test_every_value_named_in_the_text_exists() -> None:
    words = re.findall(r"`([\w.]+?)(?:\.\*)?(?:=[^`]*)?`", TEXTS["kubernetes.md"])
    names = {word for word in words if "." in word and word.partition(".")[0] in TOP_LEVEL}
    assert len(names) >= 20
    assert {name for name in names if not is_value(name)} == set()


def test_commands_are_found_on_both_pages() -> None:
    assert [command.page for command in COMMANDS].count("README.md") == 1
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:90])
def test_a_shown_command_renders(command: Command, helm: Path, tmp_path: Path) -> None:
    """Finds unquoted commas in `--set`, misspelt files, and values that do not fit each other."""
    result = run(helm, *command.template(CHART, tmp_path))
    assert result.code == 0, result.errors
    deployment = single(read(result.text), "Deployment")["metadata"]
    assert deployment["name"] == f"{command.words[2]}-routebook", "other commands on the page use this name"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:90])
def test_the_page_shows_a_commands_prerequisites(command: Command) -> None:
    """They are the user's own registry, and the Secrets that the command's values name."""
    if command.words[1] == "install":
        text = " ".join([command.text, *(inner for name, inner in command.files if name in command.words)])
        assert "registry.example" in text, "without a registry the cluster cannot pull the image"
    created = set(re.findall(r"create secret (?:generic|tls) (\S+)", TEXTS[command.page]))
    assert secrets_named_by(command.text, command.files) <= created


def test_image_tags_are_the_products_version() -> None:
    for page, text in TEXTS.items():
        tags = set(re.findall(r"\broutebook(?:-pipeline)?:([0-9][\w.-]*)", text))
        assert tags == {routebook.__version__}, page


@dataclass
class Cluster:
    """The state that the commands so far have created, as far as later commands depend on it."""

    namespaces: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    releases: set[str] = field(default_factory=set)

    def run(self, line: str, files: tuple[tuple[str, str], ...]) -> None:
        words = shlex.split(line, comments=True)
        if "--create-namespace" in words:
            self.namespaces.add(words[words.index("--namespace") + 1])
        if "--namespace" in words:
            assert words[words.index("--namespace") + 1] in self.namespaces, "the namespace does not exist"
        match [word for word in words if not word.startswith("--")]:
            case ["kubectl", "create", "namespace", name]:
                assert name not in self.namespaces, "it exists already"
                self.namespaces.add(name)
            case ["kubectl", _, "create", "secret", _, name, *_]:
                assert name not in self.secrets, "it exists already"
                self.secrets.add(name)
            case ["helm", "install" | "upgrade" as verb, release, *_]:
                assert (release in self.releases) == (verb == "upgrade"), f"{release}: {self.releases} exist"
                assert secrets_named_by(line, files) <= self.secrets
                self.releases.add(release)
            case ["helm" | "kubectl", *_]:
                assert self.releases, "no release is installed"


def secrets_named_by(line: str, files: tuple[tuple[str, str], ...]) -> set[str]:
    text = " ".join([line, *(inner for name, inner in files if name in line.split())])
    return set(re.findall(r"(?:[sS]ecret|secretName)[=:] *([\w-]+)", text))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.lines[0]}"[:90])
def test_a_block_can_be_run_line_by_line(block: Block) -> None:
    """A block that installs starts on an empty cluster, the others after the steps of "Install"."""
    cluster = Cluster() if block.installs else Cluster(namespaces={"rocketmq"}, releases={"names"})
    for line in block.lines:
        cluster.run(line, block.files)


def test_every_alternative_installation_names_the_step_it_replaces() -> None:
    """It must, because its release has the same name as that of "Install"."""
    first, *others = [block for block in BLOCKS if block.page == "kubernetes.md" and block.installs]
    assert first.before.startswith("2. **The release.**")
    assert len(others) >= 4
    assert [block.lines for block in others if "nstead of step 2" not in block.before] == []


def test_every_kubectl_command_names_its_namespace() -> None:
    shown = [line for block in BLOCKS for line in block.lines] + [
        line for page in PAGES for line in inline_commands(page)
    ]
    lines = [line for line in shown if line.startswith("kubectl ")]
    assert len(lines) >= 15
    without = [line for line in lines if not re.search(r" --namespace rocketmq\b| --all-namespaces\b", line)]
    assert {" ".join(line.split()[1:3]) for line in without} <= CLUSTER_WIDE_COMMANDS, without
