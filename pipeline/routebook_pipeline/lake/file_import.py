"""Entries from exported files, through the same commit as those of the stream.

The store uses versions a second time when it lost its last changes, and a file does not say which history it is of. So
it must agree with the lake where both can be compared: at the lake's place, and behind it, since along a history times
never fall.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import HistoryError, WrongUsageError
from routebook_pipeline.kinds import Kind
from routebook_pipeline.lake.commit import CommittedBatch, NotTheNextError, commit
from routebook_pipeline.lake.folders import Folder, check_spark_reaches
from routebook_pipeline.lake.tables import Lake, PinnedTable, Position
from routebook_pipeline.source.stream import EntryId
from routebook_pipeline.times import iso

LINE: Final = "id STRING, d STRING"
"""One JSON object a line, as the stream has the entry: its id, and the text of its field `d`."""
_ID: Final = r"^[0-9]{1,15}-[0-9]{1,15}$"


@dataclass(frozen=True)
class Known:
    """What the lake knows of its history, to compare files with."""

    position: EntryId
    """With a time that nothing behind it is before."""
    last: EntryId | None
    """The entry at that place; None when it is lost, or a fork."""
    ended: EntryId | None
    """What the era before ended with, when nothing followed its end yet."""

    def contradiction(self, found: set[EntryId], behind_ms: int | None) -> str | None:
        """With files that have the entries `found`, among others, and behind the place none before `behind_ms`."""
        for each in sorted(found):
            if self.last is not None and each.version == self.last.version and each.ms != self.last.ms:
                return f"version {each.version} is of {iso(each.ms)} there, and of {iso(self.last.ms)} in the lake"
            if each == self.ended:
                return (
                    f"they have version {each.version} of {iso(each.ms)}, with which the history before this one ended"
                )
        if behind_ms is not None and behind_ms < self.position.ms:
            begins, ends = iso(behind_ms), iso(self.position.ms)
            return (
                f"what follows version {self.position.version} is of {begins} there, and the lake is at {ends} already"
            )
        return None


def import_files(spark: SparkSession, lake: Lake, files: Sequence[str]) -> CommittedBatch | None:
    """In any order, and they may overlap; what the lake holds is left out. None when it held everything."""
    lake.changes.make()
    lines = _lines(spark, files)
    last_ms = _checked(lines, lake, _known(spark, lake.changes.pin()))
    if last_ms is None:
        return None
    entries = lines.dropDuplicates(["id"]).select(
        F.col("id").alias("entry_id"), F.col("d").cast("binary").alias("payload")
    )
    try:
        return commit(entries, lake.changes, ingested_ms=last_ms)
    except NotTheNextError as error:
        raise HistoryError(
            f"The lake holds the changes up to version {error.held}, and the files have those from {error.first} to "
            f"{error.last}, not all of them, or not right behind it: nothing was written. Import what lies between "
            "first, or all files in one command."
        ) from error


def _checked(lines: DataFrame, lake: Lake, known: Known | None) -> int | None:
    """The last time in the lines; None when there are none."""
    ms, version = (F.get(F.split("id", "-"), part).try_cast("bigint") for part in (0, 1))
    compared = [each.version for each in (known.last, known.ended) if each is not None] if known else []
    behind = version > known.position.version if known else F.lit(False)
    checked = lines.agg(
        F.max(ms).alias("last_ms"),
        F.min(F.when(F.col("id").isNull() | F.col("d").isNull() | ~F.col("id").rlike(_ID), F.col("file"))).alias("bad"),
        F.collect_set(F.when(version.isin(compared), F.col("id"))).alias("found"),
        F.min(F.when(behind, ms)).alias("behind_ms"),
    ).collect()[0]
    if checked.bad is not None:
        raise WrongUsageError(
            f"The file {checked.bad} has a line that is no entry. Each line is one JSON object with `id`, as "
            '"1700000000000-17", and `d`.'
        )
    why = known.contradiction(set(map(EntryId.parse, checked.found)), checked.behind_ms) if known else None
    if why is not None:
        raise HistoryError(
            f"The files are of another history than the lake at {lake.folder.uri}: {why}. Nothing was written. Import "
            "what was exported since the store began anew, or these files into a lake of their own (--lake)."
        )
    last_ms: int | None = checked.last_ms
    return last_ms


def _known(spark: SparkSession, pinned: PinnedTable) -> Known | None:
    """None when nothing was ever committed."""
    place, stream_position = pinned.position, pinned.stream_position
    if place is None or stream_position is None:
        return None
    row = _row_at(spark, pinned, place)
    before = None
    if row is not None and row.code == Kind.FORK:
        before = _row_at(spark, pinned, Position(place.era - 1, row.from_version))
    return Known(EntryId(*stream_position), _entry(row), _entry(before))


def _row_at(spark: SparkSession, pinned: PinnedTable, place: Position) -> Row | None:
    rows = pinned.read(spark, lambda file: (file.first_ord or 0) <= place.ord <= (file.last_ord or 0))
    return rows.where((F.col("ord") == place.ord) & (F.col("row") == 0)).first()


def _entry(row: Row | None) -> EntryId | None:
    return None if row is None or row.code in (Kind.HOLE, Kind.FORK) else EntryId(row.ms, row.version)


def _lines(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    places = [Folder.of(file) for file in files]
    for place in places:
        check_spark_reaches(spark, place)
    try:
        found = spark.read.schema(LINE).json([place.for_spark_to_read for place in places])
    except AnalysisException as error:
        raise WrongUsageError(f"The files to import cannot be read: {str(error).splitlines()[0]}") from error
    return found.withColumn("file", F.input_file_name())
