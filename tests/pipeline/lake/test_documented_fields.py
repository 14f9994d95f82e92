"""The fields that the pipeline reads are documented in docs/changes.md, with the same types."""

import re

import pytest
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, StringType

from routebook_pipeline.kinds import BY_TITLE, OPTIONAL, REQUIRED
from routebook_pipeline.source.decoding import CHANGE_FORMAT
from tests.architecture.sources import ROOT

ROW = re.compile(r"^\| (\d+) \| `([a-z-]+)` \| (.*?) \| ")
FIELD = re.compile(r"`(\w+)` (text|texts|integer|boolean|queues)( or null)?( may be absent)?")
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "text": (StringType,),
    "integer": (IntegerType, LongType),
    "boolean": (BooleanType,),
    "queues": (ArrayType,),
}


def documented() -> dict[str, dict[str, tuple[str, bool]]]:
    """Kind -> field -> (type, required)."""
    lines = (ROOT / "docs" / "changes.md").read_text().splitlines()
    rows = [found for line in lines if (found := ROW.match(line))]
    return {
        row[2]: {name: (kind, not null and not absent) for name, kind, null, absent in FIELD.findall(row[3])}
        for row in rows
    }


@pytest.mark.parametrize("title", sorted(BY_TITLE))
def test_every_field_that_is_read_is_documented(title: str) -> None:
    fields, kind = documented()[title], BY_TITLE[title]
    for name in REQUIRED[kind]:
        assert fields[name][1], f"{name} is required, but may be absent"
    for name in {*REQUIRED[kind], *OPTIONAL.get(kind, ())} & fields.keys():
        assert isinstance(CHANGE_FORMAT.fields[name], TYPES[fields[name][0]])
    columns = {name for name, (kind_of, _) in fields.items() if name in CHANGE_FORMAT.fields and kind_of in TYPES}
    assert columns <= {*REQUIRED[kind], *OPTIONAL.get(kind, ()), "cause"}


def test_every_kind_is_documented() -> None:
    assert documented().keys() == BY_TITLE.keys()
