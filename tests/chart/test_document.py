"""docs/kubernetes.md tells of values that are there."""

import re

from tests.architecture.sources import ROOT
from tests.chart.declared import declared_values

TEXT = (ROOT / "docs" / "kubernetes.md").read_text()
DECLARED = {found.name: found for found in declared_values()}
TOP = {name.partition(".")[0] for name in DECLARED}


def is_value(name: str) -> bool:
    """A value, a group of them, or something below one that is passed on as it is."""
    parts = name.split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    stem = next((stem for stem in stems if stem in DECLARED), None)
    return stem is not None and (stem == name or not DECLARED[stem].is_group)


def test_every_value_that_is_set_there_exists() -> None:
    names = set(re.findall(r"--set(?:-string)? '?([\w.]+)=", TEXT))
    assert len(names) >= 10
    assert {name for name in names if not is_value(name)} == set()


def test_every_value_that_is_named_there_exists() -> None:
    words = re.findall(r"`([\w.]+?)(?:\.\*)?(?:=[^`]*)?`", TEXT)
    names = {word for word in words if "." in word and word.partition(".")[0] in TOP}
    assert len(names) >= 20
    assert {name for name in names if not is_value(name)} == set()
