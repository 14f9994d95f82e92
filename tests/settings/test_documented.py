"""`docs/compatibility.md` has every property of Apache's name server, and names tests that exist."""

import re

from routebook.settings.catalogue import names_of_properties, weaker_names_of_properties
from routebook.settings.inert import inert_properties
from tests.architecture.sources import ROOT, python_files

DOCUMENT = (ROOT / "docs" / "compatibility.md").read_text()
SETTINGS = DOCUMENT.partition("\n## Settings\n")[2].partition("\n## ")[0]


def test_every_property_with_a_meaning_has_its_row_and_setting() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", SETTINGS, re.MULTILINE))
    assert rows == names_of_properties() | weaker_names_of_properties()


def test_every_property_without_one_is_there_with_the_reason_that_is_shown() -> None:
    for key, one in inert_properties().items():
        assert re.search(rf"^\|.*`{re.escape(key)}`.* \| {re.escape(one.why)} \|$", SETTINGS, re.MULTILINE), key


def test_the_tests_it_names_exist() -> None:
    defined = {
        name
        for path in python_files("tests")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named <= defined
