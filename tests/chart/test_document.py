"""README.md and docs/kubernetes.md tell of values that are there, and their commands can be typed."""

import re
from pathlib import Path

import pytest

import routebook
from tests.chart.declared import declared_values
from tests.chart.documented import PAGES, Command, commands
from tests.chart.objects import one, read
from tests.chart.rendering import CHART, run
from tests.chart.tools import HELMS

TEXTS = {page.name: page.read_text() for page in PAGES}
COMMANDS = commands()
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
    text = " ".join([command.text, *(inner for name, inner in command.files if name in command.words)])
    if command.words[1] == "install":
        assert "registry.example" in text, "the cluster cannot fetch an image that stands nowhere"
    made = set(re.findall(r"create secret (?:generic|tls) (\S+)", TEXTS[command.page]))
    named = set(re.findall(r"(?:[sS]ecret|secretName)[=:] *([\w-]+)", text))
    assert named <= made


def test_images_are_named_with_the_version_of_the_product() -> None:
    for page, text in TEXTS.items():
        tags = set(re.findall(r"\broutebook(?:-pipeline)?:([0-9][\w.-]*)", text))
        assert tags == {routebook.__version__}, page
