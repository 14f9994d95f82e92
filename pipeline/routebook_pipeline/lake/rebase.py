"""Accepts another history after RB_FORK: the lake keeps what it has; a row of kind `fork` begins a new era."""

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.ingest import READER
from routebook_pipeline.lake.tables import HISTORY, LAST_MS, OBSERVED, Lake, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, PULSE, EntryId, StreamReader


@dataclass(frozen=True)
class Rebased:
    stream: str
    era: int
    old_version: int
    """The last version of the old history."""
    first_version: int
    """The first version of the new history."""


def rebase(spark: SparkSession, lake: Lake, *, url_env: str = DEFAULT_URL_ENV, reader: str = READER) -> list[Rebased]:
    """NegativeAnswerError when both streams continue the lake. No ingest should be running."""
    done = []
    for stream, table in ((CHANGES, lake.changes), (PULSE, lake.pulses)):
        if table.exists() and table.pin().position is not None:
            with StreamReader(url_env, lake.namespace, stream) as store:
                rebased = _rebase(spark, lake, table, stream, store)
                if rebased is not None and stream == CHANGES:
                    store.write_reader_position(reader, rebased.first_version - 1)
            done += [rebased] if rebased is not None else []
    if not done:
        raise NegativeAnswerError(
            f"The store continues the history of the lake at {lake.folder.uri}: there is nothing to rebase. Continue "
            "with `routebook pipeline ingest`."
        )
    return done


def _rebase(spark: SparkSession, lake: Lake, table: Table, stream: str, store: StreamReader) -> Rebased | None:
    while True:
        pinned = table.pin()
        held, stream_position = pinned.position, pinned.stream_position
        if (
            held is None
            or stream_position is None
            or store.continues(EntryId(*stream_position), history=pinned.history)
        ):
            return None
        history = store.history()
        before = store.earliest()
        observed_ms = before.ms if store.first() is not None else store.newest().now_ms
        rebased = Rebased(stream, held.era + 1, held.version, before.version + 1)
        records = {table.name: Position(rebased.era, before.version).ord, LAST_MS: before.ms, OBSERVED: observed_ms}
        records |= {HISTORY: history} if history is not None else {}
        try:
            _commit(spark, pinned, rebased, observed_ms, records)
        except ConcurrentCommitError:
            continue
        # The checkpoints have positions of the old history.
        lake.checkpoints(stream).remove()
        return rebased


def _commit(spark: SparkSession, pinned: PinnedTable, rebased: Rebased, ms: int, records: dict[str, int]) -> None:
    table = pinned.table
    if rebased.stream != CHANGES:
        commit_files(pinned, [], records=records)
        return
    values = {
        "ns": table.namespace,
        "era": rebased.era,
        "version": rebased.first_version - 1,
        "row": 0,
        "ord": Position(rebased.era, rebased.first_version - 1).ord,
        "ms": ms,
        "kind": Kind.FORK.title,
        "code": int(Kind.FORK),
        "from_version": rebased.old_version,
        "to_version": rebased.first_version,
        "ingested_ms": ms,
    }
    row = spark.createDataFrame([[values.get(name) for name in table.columns.names]], table.columns)
    with write_attempt(table) as attempt:
        attempt.write(row.coalesce(1).withColumn(table.partition, utc_day(F.col("ms"))))
        commit_files(pinned, attempt.added, records=records, metadata={"fork": rebased.old_version})
