"""A check finds missing files before it reads any rows. Spark is not needed."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.maintenance import check
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.schemas import columns
from tests.pipeline.lake.arrow_files import add_file

NO_SPARK: Any = None


@pytest.mark.parametrize("name", ["changes", "pulses", "snapshots", "answers/flaps-by-seat"])
def test_a_missing_file_of_any_table_is_named(lake: Lake, name: str) -> None:
    answers = lake.answers("flaps-by-seat", columns((LongType(), "ord flaps")))
    files = {}
    for table in (lake.changes, lake.pulses, lake.snapshots, answers):
        table.create()
        files[table.name] = Path(table.folder.uri, add_file(table, range(5)))
    files[name].unlink()
    with pytest.raises(UnreachableError, match=f"A file of the table is missing: .*/{name}/data/.*parquet"):
        check(NO_SPARK, lake)
