"""Profiles the two parts that miss their targets: parsing a million entries, and committing a thousand."""

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from benchmarks.history import stream, synthetic
from routebook_pipeline.kinds import KNOWN_FORMAT
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.parsing import PARSERS, Batch, parse, with_positions
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.source.decoding import CHANGE_FORMAT

FILES = 4
ROUNDS = 3
SMALL_ROUNDS = 8

Run = Callable[[DataFrame], None]


def measure_parsing(spark: SparkSession, folder: Path, entries: int, run: Run) -> None:
    """Parses entries from Parquet files, without Python and the store. Each step includes the steps before it."""
    place = folder / "entries"
    place.mkdir()
    for number in range(FILES):
        versions = range(entries * number // FILES + 1, entries * (number + 1) // FILES + 1)
        ids = pyarrow.array([f"{synthetic.FIRST_MS + version}-{version}" for version in versions])
        payloads = pyarrow.array([stream.payload_of(version) for version in versions], pyarrow.binary())
        parquet.write_table(pyarrow.table({"entry_id": ids, "payload": payloads}), place / f"{number}.parquet")
    positioned = with_positions(spark.read.parquet(str(place)))
    fields = ", ".join(f"{name} {kind.simpleString()}" for name, kind in CHANGE_FORMAT.fields.items())
    validated = PARSERS["changes"].validate(positioned, KNOWN_FORMAT)
    steps = {
        "read, with positions": positioned,
        "one from_json of all fields, without checks": positioned.selectExpr(
            "*", f"from_json(CAST(payload AS STRING), '{fields}') AS entry"
        ),
        "validated, with reasons of unreadable entries": validated,
        "rows of the lake": PARSERS["changes"].to_rows(validated, Batch(synthetic.NAMESPACE, 0, 0)),
    }
    print(f"\nParsing, step by step: {entries:,} entries from files", flush=True)
    _print(dict(zip(steps, stream.best_of(ROUNDS, *(_bound(run, step) for step in steps.values())), strict=True)))


def measure_small_batch(url: str, lake: Lake, source: Callable[[int], DataFrame], run: Run, entries: int) -> None:
    """`source` reads the entries after a version. At the start the lake has all entries of the stream."""
    newest = lake.changes.pin().record("changes") or 0
    steps: dict[str, Callable[[int], object]] = {
        "a data frame of the source": source,
        "read": lambda version: run(source(version)),
        "read and parsed": lambda version: run(parse(source(version), synthetic.NAMESPACE, 0, 0)),
        "read, parsed and committed": lambda version: commit(source(version), lake.changes, ingested_ms=0),
    }
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(SMALL_ROUNDS):
        stream.fill(url, entries, first=newest + 1)
        for what, step in steps.items():
            started = time.perf_counter()
            step(newest)
            best[what] = min(best[what], time.perf_counter() - started)
        newest += entries
    print(f"\nA small batch, step by step: {entries:,} entries", flush=True)
    _print(best)


def _bound(run: Run, frame: DataFrame) -> Callable[[], None]:
    return lambda: run(frame)


def _print(seconds: dict[str, float]) -> None:
    for what, spent in seconds.items():
        print(f"    {what:<48} {spent:6.2f} s", flush=True)
