"""Files of a table written without Spark, for tests that need no Spark job."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema

from routebook_pipeline.lake.tables import Table
from routebook_pipeline.lake.transactions import commit_files, write_attempt
from tests.pipeline.lake.streams import DAY_MS

EPOCH_DAY = "1970-01-01"


def add_file(table: Table, numbers: Iterable[int], *, day: str = EPOCH_DAY, replacing: bool = False) -> str:
    """Adds a file to the table, or replaces the files of its day, and returns its path. The file looks like Spark's.
    It has a row for each of `numbers`, with that number as `ord`.
    """
    values = [{"ord": n, "version": n, "row": 0, "ms": n % DAY_MS, "topic": f"T{n * 7919 % 5000}"} for n in numbers]
    rows = pyarrow.Table.from_pylist(values, to_arrow_schema(table.columns))
    with write_attempt(table) as attempt:
        name = f"{table.partition}={day}/part-0.parquet"
        file = Path(attempt.folder.uri, name)
        file.parent.mkdir(parents=True)
        parquet.write_table(rows, file, compression="zstd", max_rows_per_page=200_000)
        attempt.add_file(name)
        commit_files(table.pin(), attempt.added, records={}, replaced_days=[day] if replacing else [])
    return attempt.added[0].path


def ords(table: Table) -> list[int]:
    """The `ord` of all rows, sorted."""
    batches = [batch for file in table.pin().files for batch in table.folder.batches(file.path)]
    return sorted(number for batch in batches for number in batch.column("ord").to_pylist())
