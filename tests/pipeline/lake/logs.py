"""Tables that have only a log, for tests that read no rows and need no Spark."""

import json
from collections.abc import Iterable
from typing import Any

from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from routebook_pipeline.lake.snapshots import start_ms
from routebook_pipeline.lake.tables import Table
from routebook_pipeline.lake.transactions import commit_files

_none: Any = None
NO_SPARK: SparkSession = _none
"""Any use of it fails."""


def write_log(table: Table, days: Iterable[str] = (), **records: int) -> None:
    """A file for each day, with one row at its first instant, and records of the table."""
    table.create()
    commit_files(table.pin(), [_file(table, number, day) for number, day in enumerate(days, 1)], records=records)


def _file(table: Table, number: int, day: str) -> AddAction:
    bounds = {"ord": number, "ms": start_ms(day)}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"raw": 1}}
    return AddAction(f"data/{day}.parquet", 1, {table.partition: day}, 0, True, json.dumps(stats))
