"""The pages that are made from the code are current. `make reference` writes them."""

import re
from pathlib import Path

import pytest

from documentation.reference import GENERATED, MANUAL, generated
from documentation.site import ROOT
from routebook.cli.main import commands
from routebook.cli.man_pages import CommandHelp, describe_commands
from routebook.http_api.app import build_operations
from routebook.settings.catalogue import all_settings
from tests.architecture.lua_scripts import scripts

FILES = dict(generated())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_page_that_is_made_from_the_code_is_current(path: Path) -> None:
    assert path.is_file(), "run `make reference`"
    assert path.read_text() == FILES[path], "run `make reference`"


def test_there_is_no_page_of_something_that_no_longer_exists() -> None:
    assert {*GENERATED} == {*(ROOT / "docs" / "reference").iterdir()}
    assert {path for path in FILES if path.parent == MANUAL} == {*MANUAL.iterdir()}


def test_every_setting_command_request_and_script_has_its_place() -> None:
    pages = {path.stem: text for path, text in FILES.items() if path in GENERATED}
    assert re.findall(r"^\| `(\w+)` \|", pages["settings"], re.MULTILINE) == list(all_settings())
    paths = [path.removeprefix("routebook ") for path in paths_of(describe_commands(commands))]
    headings = re.findall(r"^##+ (.+)$", pages["commands"], re.MULTILINE)
    assert [one for one in headings if one in paths] == paths
    requests = {
        f"{method.upper()} {path}"
        for path, item in build_operations(None).openapi()["paths"].items()
        for method in item
    }
    assert requests == set(re.findall(r"^### ([A-Z]+ /.+)$", pages["http-requests"], re.MULTILINE))
    assert re.findall(r"^## (\w+)$", pages["scripts"], re.MULTILINE) == list(scripts())


def paths_of(described: CommandHelp) -> list[str]:
    """The paths of all commands below this one."""
    return [path for one in described.inner for path in (one.path, *paths_of(one))]
