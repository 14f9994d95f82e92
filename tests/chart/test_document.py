"""README.md and docs/kubernetes.md tell of values that are there, and their commands can be typed."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import routebook
from tests.chart.declared import declared_values
from tests.chart.documented import PAGES, Block, Command, blocks, commands, inline_commands
from tests.chart.objects import one, read
from tests.chart.rendering import CHART, run
from tests.chart.tools import HELMS

TEXTS = {page.name: page.read_text() for page in PAGES}
COMMANDS = commands()
BLOCKS = [block for block in blocks() if any(line.startswith(("kubectl ", "helm ")) for line in block.lines)]
WITHOUT_NAMESPACE = {"get storageclass", "create namespace", "taint nodes", "delete node", "drain NODE"}
DECLARED = {found.name: found for found in declared_values()}
TOP = {name.partition(".")[0] for name in DECLARED}


def is_value(name: str) -> bool:
    """A value, a group of them, or something below one that is passed on as it is."""
    parts = name.split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    stem = next((stem for stem in stems if stem in DECLARED), None)
    return stem is not None and (stem == name or not DECLARED[stem].is_group)


@pytest.mark.parametrize(("page", "fewest"), [("README.md", 2), ("kubernetes.md", 10)])
def test_every_value_that_is_set_there_exists(page: str, fewest: int) -> None:
    names = set(re.findall(r"--set(?:-string)? '?([\w.]+)=", TEXTS[page]))
    assert len(names) >= fewest
    assert {name for name in names if not is_value(name)} == set()


def test_every_value_that_is_named_there_exists() -> None:
    words = re.findall(r"`([\w.]+?)(?:\.\*)?(?:=[^`]*)?`", TEXTS["kubernetes.md"])
    names = {word for word in words if "." in word and word.partition(".")[0] in TOP}
    assert len(names) >= 20
    assert {name for name in names if not is_value(name)} == set()


def test_the_commands_are_found() -> None:
    assert [command.page for command in COMMANDS].count("README.md") == 1
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("helm", HELMS, ids=lambda helm: helm.name)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:90])
def test_a_command_can_be_typed_as_it_stands_there(command: Command, helm: Path, tmp_path: Path) -> None:
    """`--set` splits at commas, a file may be misspelt, values may not fit each other: all of it shows here."""
    said = run(helm, *command.template(CHART, tmp_path))
    assert said.code == 0, said.errors
    deployment = one(read(said.text), "Deployment")["metadata"]
    assert deployment["name"] == f"{command.words[2]}-routebook", "other commands there go by this name"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}"[:90])
def test_what_a_command_takes_for_granted_is_shown_too(command: Command) -> None:
    """A registry of one's own, and the Secrets that its values name."""
    if command.words[1] == "install":
        text = " ".join([command.text, *(inner for name, inner in command.files if name in command.words)])
        assert "registry.example" in text, "the cluster cannot fetch an image that stands nowhere"
    made = set(re.findall(r"create secret (?:generic|tls) (\S+)", TEXTS[command.page]))
    assert secrets_named_by(command.text, command.files) <= made


def test_images_are_named_with_the_version_of_the_product() -> None:
    for page, text in TEXTS.items():
        tags = set(re.findall(r"\broutebook(?:-pipeline)?:([0-9][\w.-]*)", text))
        assert tags == {routebook.__version__}, page


@dataclass
class Cluster:
    """What is there after some commands, as far as the next ones need it."""

    namespaces: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    releases: set[str] = field(default_factory=set)

    def type(self, line: str, files: tuple[tuple[str, str], ...]) -> None:
        words = shlex.split(line, comments=True)
        if "--create-namespace" in words:
            self.namespaces.add(words[words.index("--namespace") + 1])
        if "--namespace" in words:
            assert words[words.index("--namespace") + 1] in self.namespaces, "there is no such namespace"
        match [word for word in words if not word.startswith("--")]:
            case ["kubectl", "create", "namespace", name]:
                assert name not in self.namespaces, "it is there already"
                self.namespaces.add(name)
            case ["kubectl", _, "create", "secret", _, name, *_]:
                assert name not in self.secrets, "it is there already"
                self.secrets.add(name)
            case ["helm", "install" | "upgrade" as verb, release, *_]:
                assert (release in self.releases) == (verb == "upgrade"), f"{release}: {self.releases} are there"
                assert secrets_named_by(line, files) <= self.secrets
                self.releases.add(release)
            case ["helm" | "kubectl", *_]:
                assert self.releases, "nothing was installed"


def secrets_named_by(line: str, files: tuple[tuple[str, str], ...]) -> set[str]:
    text = " ".join([line, *(inner for name, inner in files if name in line.split())])
    return set(re.findall(r"(?:[sS]ecret|secretName)[=:] *([\w-]+)", text))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.lines[0]}"[:90])
def test_a_block_can_be_typed_line_after_line(block: Block) -> None:
    """On an empty cluster, if it installs; the others after the steps of "Install"."""
    cluster = Cluster() if block.installs else Cluster(namespaces={"rocketmq"}, releases={"names"})
    for line in block.lines:
        cluster.type(line, block.files)


def test_every_other_way_to_install_says_what_it_takes_the_place_of() -> None:
    """Its release has the name of the one that "Install" made."""
    first, *others = [block for block in BLOCKS if block.page == "kubernetes.md" and block.installs]
    assert first.before.startswith("2. **The release.**")
    assert len(others) >= 4
    assert [block.lines for block in others if "nstead of step 2" not in block.before] == []


def test_kubectl_is_told_which_name_space() -> None:
    shown = [line for block in BLOCKS for line in block.lines] + [
        line for page in PAGES for line in inline_commands(page)
    ]
    lines = [line for line in shown if line.startswith("kubectl ")]
    assert len(lines) >= 15
    untold = [line for line in lines if not re.search(r" --namespace rocketmq\b| --all-namespaces\b", line)]
    assert {" ".join(line.split()[1:3]) for line in untold} <= WITHOUT_NAMESPACE, untold
