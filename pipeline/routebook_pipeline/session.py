"""The one place where a Spark session is made. Every setting can be overridden with `--conf key=value`."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from routebook_pipeline.java import find_java_home
from routebook_pipeline.local_files import zip_own_package

LOCAL: Final = "local[*]"
APPLICATION: Final = "routebook"
PY_FILES: Final = "spark.submit.pyFiles"

_EVERYWHERE: Final = {
    # Days and instants are UTC in the lake and in every answer, whatever the machine's own zone.
    "spark.sql.session.timeZone": "UTC",
    # Joins and partition counts are corrected by what a stage really produced; small histories would drown in 200
    # partitions.
    "spark.sql.adaptive.enabled": "true",
    # An answer goes to standard output; a progress bar there would be part of it.
    "spark.ui.showConsoleProgress": "false",
    # A port a command, open for as long as it runs, and nobody looks.
    "spark.ui.enabled": "false",
    # Every column expression would note from which Python line it came: half of the time of making a query.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The table's log says which files belong to it.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The columns of a table are known; what an older file lacks is null.
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Pages of 20,000 values, the default, are compressed each by itself: a lake of twice the size.
    "spark.hadoop.parquet.page.row.count.limit": "200000",
    # A batch is of one day or two, each a folder: so many files open at once cost less than sorting the batch by day,
    # a fifth of the time of an ingest. Of more days Spark sorts, as it always would without this.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
}

_ON_ONE_MACHINE: Final = {
    # Nobody else has business with this driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 10 million events pass in 1 GB at the same speed.
    "spark.driver.memory": "2g",
    # Throughput counts here, not pauses: Java's default collector took half of the time of parsing on two cores. And
    # the code that Spark makes for rows of forty columns is longer than what Java compiles unless it is told to.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:-DontCompileHugeMethods",
}


def settings(master: str, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the session is built with, for this master."""
    chosen = dict(_EVERYWHERE)
    if master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
        # The default of 200 made a route nine times slower without adaptive execution, and the first run three times
        # with it.
        chosen["spark.sql.shuffle.partitions"] = str(2 * _cores(master))
    return chosen | dict(overrides or {})


_WHEN_JAVA_STARTS: Final = ("spark.driver.memory", "spark.driver.extraJavaOptions")


def settings_when_submitted(told: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """`told`: what `spark-submit` was told, or read from its files. It wins over ours, and `overrides` over both. What
    counts when Java starts is its business alone: Java runs.
    """
    ours = settings(told.get("spark.master", ""))
    left = {key: value for key, value in ours.items() if key not in told and key not in _WHEN_JAVA_STARTS}
    return left | dict(overrides or {})


def build_session(
    master: str = LOCAL,
    overrides: Mapping[str, str] | None = None,
    *,
    name: str = APPLICATION,
    java_output_fd: int | None = None,
) -> SparkSession:
    """Under `spark-submit` the running JVM and its master are taken as they are.

    `java_says`: a file descriptor for whatever the JVM prints, both its outputs. Without it they are this process's:
    and an answer on standard output must be the answer only.
    """
    if is_submitted():
        builder = SparkSession.builder.appName(name)
        SparkContext._ensure_initialized()
        chosen = settings_when_submitted(dict(SparkConf().getAll()), overrides)
    else:
        os.environ["JAVA_HOME"] = str(find_java_home())
        chosen = settings(master, overrides)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Spark's Python processes would be the first python3 of the path, which need not have our packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        else:
            chosen[PY_FILES] = with_own_package(chosen.get(PY_FILES, ""))
        builder = SparkSession.builder.appName(name).master(master)
        if java_output_fd is not None and SparkContext._gateway is None:
            _start_java(chosen | {"spark.master": master, "spark.app.name": name}, java_output_fd)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def with_own_package(py_files: str) -> str:
    """Executors without it: ModuleNotFoundError; so what a user sends there comes beside it, not in its place. (The
    driver has it installed: Spark's streaming planner is a Python process that does not see these files.)
    """
    return ",".join([str(zip_own_package()), *filter(None, py_files.split(","))])


def is_submitted() -> bool:
    """Started by `spark-submit`: Java was there before us."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _start_java(chosen: Mapping[str, str], java_output_fd: int) -> None:
    """What `getOrCreate` would do, but for the JVM's outputs and its process group: who sends SIGTERM to ours asks us
    to stop in order, for which Java is needed. It ends with us in any case: its standard input does.
    """
    conf = SparkConf().setAll(list(chosen.items()))
    differently = {"stdout": java_output_fd, "stderr": java_output_fd, "start_new_session": True}
    gateway = launch_gateway(conf, differently)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1
