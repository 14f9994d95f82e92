"""Entries like the service writes them, and what the lake has of them."""

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.lake.tables import Table
from routebook_pipeline.schemas import SOURCE
from routebook_pipeline.source.stream import EntryId, StreamEnd

DAY_MS = 86_400_000
START_MS = 19_700 * DAY_MS
"""A midnight."""


def payload(version: int, **fields: Any) -> bytes:
    seat = {"cluster": "c", "broker": f"b{version % 3}", "id": 0, "addr": f"127.0.0.{version % 200}:10911"}
    entry = {"v": 1, "kind": "broker-changed", **seat, **fields}
    return json.dumps(entry, separators=(",", ":")).encode()


def entries(first: int, last: int, *, step_ms: int = 1000) -> list[tuple[str, bytes]]:
    """Versions `first` to `last`, by default one a second from `START_MS`."""
    return [(f"{START_MS + version * step_ms}-{version}", payload(version)) for version in range(first, last + 1)]


def hole(first: int, last: int) -> tuple[str, bytes]:
    entry = {"v": 1, "kind": "hole", "from_version": first, "to_version": last}
    return f"hole:{START_MS + first}-{first}", json.dumps(entry).encode()


def ends_at(version: int, now_ms: int) -> StreamEnd:
    """The stream ended with `version` when the store's clock was `now_ms`."""
    return StreamEnd(EntryId(now_ms, version), now_ms)


def frame(spark: SparkSession, rows: Iterable[tuple[str, bytes]]) -> DataFrame:
    return spark.createDataFrame(list(rows), SOURCE)


def versions(spark: SparkSession, table: Table) -> list[tuple[int, int]]:
    """First and last version of each row 0, in the order of `ord`."""
    rows = table.pin().read(spark).where("row = 0")
    found = rows.select("ord", F.coalesce("from_version", "version"), F.coalesce("to_version", "version")).collect()
    return [(row[1], row[2]) for row in sorted(found)]


def paths(table: Table) -> set[str]:
    """The data files that exist, whether the table refers to them or not."""
    return {file.path for file in table.folder.files() if file.path.endswith(".parquet") and "_delta" not in file.path}
