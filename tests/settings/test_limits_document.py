"""`docs/limits.md` has every limit with its default, and names tests that exist."""

import re
from typing import NamedTuple

import pytest

from routebook.settings.catalogue import all_settings
from routebook.settings.limits import LimitSettings
from tests.architecture.sources import ROOT, python_files


class Row(NamedTuple):
    limit: str
    default: str
    setting: str
    why: str
    seen: str
    test: str


def rows() -> list[Row]:
    lines = (ROOT / "docs" / "limits.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [Row(*row) for row in cells if row[0] != "limit" and not row[0].startswith("---")]


WITH_SETTING = [row for row in rows() if row.setting != "fixed"]


@pytest.mark.parametrize("row", WITH_SETTING, ids=[row.setting.strip("`") for row in WITH_SETTING])
def test_the_setting_of_a_limit_has_the_documented_default(row: Row) -> None:
    default = all_settings()[row.setting.strip("`")].default
    documented = re.match(r"[\d,]+", row.default)
    assert (documented is None) == isinstance(default, str)
    assert documented is None or int(documented[0].replace(",", "")) == default


def test_every_setting_that_limits_peers_is_documented() -> None:
    assert LimitSettings.model_fields.keys() <= {row.setting.strip("`") for row in WITH_SETTING}


def test_every_limit_names_a_test_that_exists() -> None:
    defined = {
        name
        for path in python_files("tests")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert {row.test.strip("`") for row in rows()} <= defined
