"""What a check finds before it reads anything. Spark is not needed."""

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


@pytest.mark.parametrize("of", ["changes", "pulses", "snapshots", "answers/flaps-by-seat"])
def test_a_file_that_is_gone_is_named_whatever_its_table(lake: Lake, of: str) -> None:
    answers = lake.answers("flaps-by-seat", columns((LongType(), "ord flaps")))
    files = {}
    for table in (lake.changes, lake.pulses, lake.snapshots, answers):
        table.make()
        files[table.name] = Path(table.folder.uri, add_file(table, range(5)))
    files[of].unlink()
    with pytest.raises(UnreachableError, match=f"A file of the table is missing: .*/{of}/data/.*parquet"):
        check(NO_SPARK, lake)
