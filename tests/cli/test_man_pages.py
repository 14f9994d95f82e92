"""The manual pages of the wheel: one for each command, and troff accepts them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from routebook.cli.main import commands
from routebook.cli.man_pages import man_pages
from tests.architecture.sources import ROOT

PAGES = dict(man_pages(commands))


def test_the_wheel_has_a_page_for_each_command() -> None:
    """`make reference` writes them; tests/documents compares their text."""
    assert {file.stem for file in (ROOT / "service" / "man").iterdir()} == set(PAGES)
    assert {"routebook", "routebook-status", "routebook-settings", "routebook-serve"} <= set(PAGES)


def test_a_page_has_the_help_of_its_command_and_subcommands() -> None:
    page = PAGES["routebook-settings"]
    for part in (".SS reset", "routebook settings set hold_percent 40 \\-\\-dry\\-run", ".SH EXIT STATUS"):
        assert part in page
    assert "\\-\\-max\\-groups" in PAGES["routebook-serve"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_troff_has_no_warnings(tmp_path: Path) -> None:
    for name, text in PAGES.items():
        file = tmp_path / f"{name}.1"
        file.write_text(text)
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", file], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), name
