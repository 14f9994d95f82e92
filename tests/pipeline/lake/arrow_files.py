"""Files of a table that Spark did not write: what is tried with them costs no job."""

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
    """One more in the table, or instead of those of its day, made as Spark makes them; its path. A row for each number,
    which is its `ord`.
    """
    values = [{"ord": n, "version": n, "row": 0, "ms": n % DAY_MS, "topic": f"T{n * 7919 % 5000}"} for n in numbers]
    rows = pyarrow.Table.from_pylist(values, to_arrow_schema(table.columns))
    with write_attempt(table) as made:
        name = f"{table.partition}={day}/part-0.parquet"
        place = Path(made.folder.uri, name)
        place.parent.mkdir(parents=True)
        parquet.write_table(rows, place, compression="zstd", max_rows_per_page=200_000)
        made.take(name)
        commit_files(table.pin(), made.added, records={}, replaced_day=day if replacing else None)
    return made.added[0].path


def ords(table: Table) -> list[int]:
    """Of all rows, in order."""
    batches = [batch for file in table.pin().files for batch in table.folder.batches(file.path)]
    return sorted(number for batch in batches for number in batch.column("ord").to_pylist())
