"""Entries from exported files, through the same commit as those of the stream."""

from collections.abc import Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.errors import HistoryError, WrongUsageError
from routebook_pipeline.lake.commit import Committed, NotTheNextError, commit
from routebook_pipeline.lake.connectors import check_spark_reaches
from routebook_pipeline.lake.folders import Folder
from routebook_pipeline.lake.tables import Lake

LINE: Final = "id STRING, d STRING"
"""One JSON object a line, as the stream has the entry: its id, and the text of its field `d`."""
_ID: Final = r"^[0-9]{1,15}-[0-9]{1,15}$"


def import_files(spark: SparkSession, lake: Lake, files: Sequence[str]) -> Committed | None:
    """In any order, and they may overlap; what the lake holds is left out. None when it held everything."""
    lake.changes.make()
    lines = _lines(spark, files)
    checked = lines.agg(
        F.max(F.split("id", "-")[0].try_cast("bigint")).alias("last_ms"),
        F.min(F.when(F.col("id").isNull() | F.col("d").isNull() | ~F.col("id").rlike(_ID), F.col("file"))).alias("bad"),
    ).collect()[0]
    if checked.bad is not None:
        raise WrongUsageError(
            f"The file {checked.bad} has a line that is no entry. Each line is one JSON object with `id`, as "
            '"1700000000000-17", and `d`.'
        )
    if checked.last_ms is None:
        return None
    entries = lines.dropDuplicates(["id"]).select(
        F.col("id").alias("entry_id"), F.col("d").cast("binary").alias("payload")
    )
    try:
        return commit(entries, lake.changes, ingested_ms=checked.last_ms)
    except NotTheNextError as error:
        raise HistoryError(
            f"The lake holds the changes up to version {error.held}, and the files have those from {error.first} to "
            f"{error.last}, not all of them, or not right behind it: nothing was written. Import what lies between "
            "first, or all files in one command."
        ) from error


def _lines(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    places = [Folder.of(file) for file in files]
    for place in places:
        check_spark_reaches(spark, place)
    try:
        found = spark.read.schema(LINE).json([place.for_spark_to_read for place in places])
    except AnalysisException as error:
        raise WrongUsageError(f"The files to import cannot be read: {str(error).splitlines()[0]}") from error
    return found.withColumn("file", F.input_file_name())
