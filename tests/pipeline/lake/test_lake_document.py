"""docs/lake.md names every column of the lake with its type, and every place that it can be in."""

import re

import pytest
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructType

from routebook_pipeline.kinds import PIPELINE_KINDS, Kind
from routebook_pipeline.lake.folders import SCHEMES, what_to_give
from routebook_pipeline.schemas import CHANGES, PULSES
from tests.architecture.sources import ROOT

DOCUMENT = (ROOT / "docs" / "lake.md").read_text()
TABLES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL))
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "integer": IntegerType(),
    "long": LongType(),
    "boolean": BooleanType(),
}


def told_columns(table: str) -> list[tuple[str, DataType]]:
    """A line tells of one column or several, and of one type for all of them or one for each."""
    told: list[tuple[str, DataType]] = []
    for names, types in re.findall(r"^\| (`.+?) \| ([a-z, ]+?) \| ", TABLES[table], re.MULTILINE):
        each, kinds = re.findall(r"`(\w+)`", names), types.split(", ")
        told += zip(each, [TYPES[kind] for kind in kinds * (len(each) // len(kinds))], strict=True)
    return told


@pytest.mark.parametrize(("table", "columns"), [("changes, snapshots", CHANGES), ("pulses", PULSES)])
def test_every_column_is_told_with_its_type(table: str, columns: StructType) -> None:
    in_code = [(field.name, field.dataType) for field in columns.fields]
    assert sorted(told_columns(table), key=str) == sorted(in_code, key=str)


def test_the_kinds_of_the_lakes_own_are_told() -> None:
    told = re.search(r"three of the lake's own: (.+?);", DOCUMENT)
    assert told is not None
    own = sorted(kind for kind in PIPELINE_KINDS if kind is not Kind.UNKNOWN)
    assert told[1] == ", ".join(f"`{kind.title}` {kind:d}" for kind in own)


def test_places_and_what_a_missing_connector_says_are_told() -> None:
    assert [scheme for scheme in SCHEMES if f"`{scheme}://`" not in DOCUMENT] == []
    assert what_to_give("s3a", "…") in re.sub(r"\n", " ", DOCUMENT)
