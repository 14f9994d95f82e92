"""Another history after RB_FORK: what the lake holds stays, and a new era begins behind a row that says so."""

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import NegativeAnswerError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.ingest import READER
from routebook_pipeline.lake.tables import LAST_MS, OBSERVED, Lake, PinnedTable, Position, Table
from routebook_pipeline.lake.transactions import ConcurrentCommitError, commit_files, utc_day, write_attempt
from routebook_pipeline.source.stream import CHANGES, DEFAULT_URL_ENV, PULSE, EntryId, StreamReader


@dataclass(frozen=True)
class Rebased:
    stream: str
    era: int
    old_version: int
    """The last one of the history that ended."""
    first_version: int
    """The first one of the history that follows."""


def rebase(spark: SparkSession, lake: Lake, *, url_env: str = DEFAULT_URL_ENV, reader: str = READER) -> list[Rebased]:
    """AnswerIsNoError when both streams continue what the lake holds. No ingest should run."""
    done = []
    for stream, table in ((CHANGES, lake.changes), (PULSE, lake.pulses)):
        if table.exists() and table.pin().position is not None:
            with StreamReader(url_env, lake.namespace, stream) as store:
                found = _rebase(spark, lake, table, stream, store)
                if found is not None and stream == CHANGES:
                    store.write_reader_position(reader, found.first_version - 1)
            done += [found] if found is not None else []
    if not done:
        raise NegativeAnswerError(
            f"The store continues what the lake at {lake.folder.uri} holds: there is nothing to rebase. Go on with "
            "`routebook pipeline ingest`."
        )
    return done


def _rebase(spark: SparkSession, lake: Lake, table: Table, stream: str, store: StreamReader) -> Rebased | None:
    while True:
        pinned = table.pin()
        held, place = pinned.position, pinned.stream_position
        if held is None or place is None or store.continues(EntryId(*place)):
            return None
        before = store.earliest()
        observed_ms = before.ms if store.first() is not None else store.newest().now_ms
        rebased = Rebased(stream, held.era + 1, held.version, before.version + 1)
        records = {table.name: Position(rebased.era, before.version).ord, LAST_MS: before.ms, OBSERVED: observed_ms}
        try:
            _commit(spark, pinned, rebased, observed_ms, records)
        except ConcurrentCommitError:
            continue
        # It tells places of the history that ended.
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
    with write_attempt(table) as made:
        made.write(row.coalesce(1).withColumn(table.partition, utc_day(F.col("ms"))))
        commit_files(pinned, made.added, records=records, metadata={"fork": rebased.old_version})
