"""`docs/compatibility.md` has every property of Apache's name server, and names tests that exist."""

import re

from routebook.settings.catalogue import names_of_properties, weaker_names_of_properties
from routebook.settings.files import inert_properties
from tests.architecture.sources import ROOT, python_files

DOCUMENT = (ROOT / "docs" / "compatibility.md").read_text()
SETTINGS = DOCUMENT.partition("\n## Settings\n")[2].partition("\n## ")[0]


def test_every_supported_property_is_documented_with_its_setting() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", SETTINGS, re.MULTILINE))
    assert rows == names_of_properties() | weaker_names_of_properties()


def test_every_inert_property_is_documented_with_its_reason() -> None:
    for key, one in inert_properties().items():
        assert re.search(rf"^\|.*`{re.escape(key)}`.* \| {re.escape(one.why)} \|$", SETTINGS, re.MULTILINE), key


def test_the_named_tests_exist() -> None:
    defined = {
        name
        for path in python_files("tests")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named <= defined
