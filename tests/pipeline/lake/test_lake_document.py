"""docs/lake.md names every column of the lake with its type, and every kind of address of a lake."""

import re

import pytest
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructType

from routebook_pipeline.kinds import PIPELINE_KINDS, Kind
from routebook_pipeline.lake.folders import SCHEMES, connector_advice
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


def documented_columns(table: str) -> list[tuple[str, DataType]]:
    """A line is about one or several columns, with one type for all of them or one for each."""
    found: list[tuple[str, DataType]] = []
    for names, types in re.findall(r"^\| (`.+?) \| ([a-z, ]+?) \| ", TABLES[table], re.MULTILINE):
        columns, kinds = re.findall(r"`(\w+)`", names), types.split(", ")
        found += zip(columns, [TYPES[kind] for kind in kinds * (len(columns) // len(kinds))], strict=True)
    return found


@pytest.mark.parametrize(("table", "columns"), [("changes, snapshots", CHANGES), ("pulses", PULSES)])
def test_every_column_is_documented_with_its_type(table: str, columns: StructType) -> None:
    in_code = [(field.name, field.dataType) for field in columns.fields]
    assert sorted(documented_columns(table), key=str) == sorted(in_code, key=str)


def test_the_kinds_that_only_the_lake_has_are_documented() -> None:
    found = re.search(r"three that only the lake has: (.+?);", DOCUMENT)
    assert found is not None
    own = sorted(kind for kind in PIPELINE_KINDS if kind is not Kind.UNKNOWN)
    assert found[1] == ", ".join(f"`{kind.title}` {kind:d}" for kind in own)


def test_addresses_and_the_error_of_a_missing_connector_are_documented() -> None:
    assert [scheme for scheme in SCHEMES if f"`{scheme}://`" not in DOCUMENT] == []
    assert connector_advice("s3a", "…") in re.sub(r"\n", " ", DOCUMENT)
