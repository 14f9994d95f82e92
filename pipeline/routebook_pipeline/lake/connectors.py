"""What Spark needs besides to reach an object store: pip brings it with Hadoop's client only."""

from typing import Any, Final

from pyspark.sql import SparkSession

from routebook_pipeline.errors import UnreachableError
from routebook_pipeline.lake.folders import Folder

COORDINATES: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "org.apache.hadoop:hadoop-gcp",
}
"""Of Hadoop's own connectors, each of the same version as the rest of Hadoop."""


def check_spark_reaches(spark: SparkSession, folder: Folder) -> None:
    """UnreachableError says what to give: Java would say it in a hundred lines, and only when something is written."""
    scheme = folder.for_spark.partition("://")[0]
    if scheme == "file":
        return
    java: Any = spark._jvm
    try:
        java.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Exception as error:
        hadoop = java.org.apache.hadoop.util.VersionInfo.getVersion()
        raise UnreachableError(
            f"Spark has no connector for {scheme}://, so it cannot reach {folder.uri}. {what_to_give(scheme, hadoop)}"
        ) from error


def what_to_give(scheme: str, hadoop: str) -> str:
    coordinates = COORDINATES.get(scheme)
    if coordinates is None:
        return "Give it one with `--conf spark.jars=…`."
    return (
        f"Give it one with `--conf spark.jars.packages={coordinates}:{hadoop}`, which Spark fetches at its start, or "
        "name the same jars with `--conf spark.jars=…`."
    )
