"""Imports entries from exported files, through the same commit as entries of the stream.

After losing its last changes, the store uses their versions again, and a file does not say from which history it is. So
a file is compared with the lake where that is possible: at the lake's position, where the ids must be equal, and after
it, where no time may be earlier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyarrow import compute
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import HistoryError, WrongUsageError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.commit import CommittedBatch, DiscontinuityError, commit
from routebook_pipeline.lake.folders import Folder, check_spark_reaches
from routebook_pipeline.lake.tables import Lake, PinnedTable, Position
from routebook_pipeline.source.stream import EntryId
from routebook_pipeline.times import iso

LINE: Final = "id STRING, d STRING"
"""A JSON object on each line: the id of the entry, and the text of its field `d`."""
_ID: Final = r"^[0-9]{1,15}-[0-9]{1,15}$"


@dataclass(frozen=True)
class LakeHistory:
    """What the lake knows about its history, to compare files with."""

    position: EntryId
    """No later entry has an earlier time."""
    last: EntryId | None
    """The entry at that position; None when it is a hole or a fork."""
    ended: EntryId | None
    """The last entry of the era before, if nothing has been committed since the fork."""

    def contradiction(self, found: set[EntryId], first_later_ms: int | None) -> str | None:
        """Why the files must be from another history, or None. `found`: the ids in the files with the version of `last`
        or of `ended`. `first_later_ms`: the earliest time in the files after `position`.
        """
        for each in sorted(found):
            if self.last is not None and each.version == self.last.version and each.ms != self.last.ms:
                return (
                    f"version {each.version} is from {iso(each.ms)} in the files, and {iso(self.last.ms)} in the lake"
                )
            if each == self.ended:
                return (
                    f"they have version {each.version} of {iso(each.ms)}, with which the history before this one ended"
                )
        if first_later_ms is not None and first_later_ms < self.position.ms:
            begins, ends = iso(first_later_ms), iso(self.position.ms)
            return f"the entries after version {self.position.version} are from {begins}, but the lake is at {ends}"
        return None


def import_files(spark: SparkSession, lake: Lake, files: Sequence[str]) -> CommittedBatch | None:
    """Files may be in any order and may overlap. None when the lake already has all their entries."""
    lake.changes.create()
    lines = _lines(spark, files)
    last_ms = _check(lines, lake, _lake_history(spark, lake.changes.pin()))
    if last_ms is None:
        return None
    entries = lines.dropDuplicates(["id"]).select(
        F.col("id").alias("entry_id"), F.col("d").cast("binary").alias("payload")
    )
    try:
        return commit(entries, lake.changes, ingested_ms=last_ms)
    except DiscontinuityError as error:
        raise HistoryError(
            f"The lake holds the changes up to version {error.held}, and the files have versions between {error.first} "
            f"and {error.last}. Some are missing, in the files or between the lake and the files, so nothing was "
            "written. Import the missing entries first, or all files in one command."
        ) from error


def _check(lines: DataFrame, lake: Lake, history: LakeHistory | None) -> int | None:
    """The last time in the lines; None when there are no lines."""
    ms, version = (F.get(F.split("id", "-"), part).try_cast("bigint") for part in (0, 1))
    compared = [each.version for each in (history.last, history.ended) if each is not None] if history else []
    is_later = version > history.position.version if history else F.lit(False)
    checked = lines.agg(
        F.max(ms).alias("last_ms"),
        F.min(F.when(F.col("id").isNull() | F.col("d").isNull() | ~F.col("id").rlike(_ID), F.col("file"))).alias("bad"),
        F.collect_set(F.when(version.isin(compared), F.col("id"))).alias("found"),
        F.min(F.when(is_later, ms)).alias("first_later_ms"),
    ).collect()[0]
    if checked.bad is not None:
        raise WrongUsageError(
            f"The file {checked.bad} has a line that is not an entry. Each line is a JSON object with `id`, like "
            '"1700000000000-17", and `d`.'
        )
    found = set(map(EntryId.parse, checked.found))
    reason = history.contradiction(found, checked.first_later_ms) if history else None
    if reason is not None:
        raise HistoryError(
            f"The files are of another history than the lake at {lake.folder.uri}: {reason}. Nothing was written. "
            "Import files that were exported since the fork, or import these files into a lake of their own (--lake)."
        )
    last_ms: int | None = checked.last_ms
    return last_ms


def _lake_history(spark: SparkSession, pinned: PinnedTable) -> LakeHistory | None:
    """None when nothing was ever committed."""
    position, stream_position = pinned.position, pinned.stream_position
    if position is None or stream_position is None:
        return None
    row = _row_at(spark, pinned, position)
    row_before = None
    if row is not None and row.code == Kind.FORK:
        row_before = _row_at(spark, pinned, Position(position.era - 1, row.from_version))
    return LakeHistory(EntryId(*stream_position), _entry_id(row), _entry_id(row_before))


def _row_at(spark: SparkSession, pinned: PinnedTable, position: Position) -> Row | None:
    around = (compute.field("first_ord") <= position.ord) & (compute.field("last_ord") >= position.ord)
    rows = pinned.read(spark, pinned.files.where(around))
    return rows.where((F.col("ord") == position.ord) & (F.col("row") == 0)).first()


def _entry_id(row: Row | None) -> EntryId | None:
    return None if row is None or row.code in (Kind.HOLE, Kind.FORK) else EntryId(row.ms, row.version)


def _lines(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    folders = [Folder.of(file) for file in files]
    for folder in folders:
        check_spark_reaches(spark, folder)
    try:
        lines = spark.read.schema(LINE).json([folder.for_spark_reader for folder in folders])
    except AnalysisException as error:
        raise WrongUsageError(f"The files to import cannot be read: {str(error).splitlines()[0]}") from error
    return lines.withColumn("file", F.input_file_name())
