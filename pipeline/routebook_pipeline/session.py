"""Builds the Spark session; nothing else does. Every setting can be overridden with `--conf key=value`."""

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from routebook_pipeline.java import find_java_home
from routebook_pipeline.local_files import zip_own_package

LOCAL: Final = "local[*]"
APPLICATION: Final = "routebook"
PY_FILES: Final = "spark.submit.pyFiles"

_EVERYWHERE: Final = {
    # Days and instants are UTC in the lake and in every answer, whatever the time zone of the machine is.
    "spark.sql.session.timeZone": "UTC",
    # Spark adapts joins and partition counts to what a stage really produced; 200 partitions are far too many for a
    # small history.
    "spark.sql.adaptive.enabled": "true",
    # The answer goes to standard output, and a progress bar there would become part of it.
    "spark.ui.showConsoleProgress": "false",
    # The UI would open a port for the duration of every command, and nothing uses it.
    "spark.ui.enabled": "false",
    # Spark would record the Python line of every column expression, which takes half of the time to build a query.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Not needed, since the table's log lists the files of the table.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The columns of a table are known; a column that an older file does not have is null.
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Each page is compressed separately: with the default of 20,000 values per page the lake is twice as large.
    "spark.hadoop.parquet.page.row.count.limit": "200000",
    # Each day is a folder, and a batch usually has entries of one or two days. Keeping that many files open avoids
    # sorting the batch by day, which takes a fifth of an ingest. Batches of more days are sorted, as by default.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
}

_ON_ONE_MACHINE: Final = {
    # Only this machine connects to the driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # 10 million events are processed at the same speed with 1 GB.
    "spark.driver.memory": "2g",
    # Throughput matters here, not pauses: Java's default collector took half of the time of parsing on two cores. The
    # code that Spark generates for rows of forty columns is longer than what Java compiles by default. A JVM without
    # memory ends at once: otherwise it hangs in collecting garbage, or fails with an error that does not name memory.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:-DontCompileHugeMethods -XX:+ExitOnOutOfMemoryError",
}


JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
"""Java's options for one question about a small history. Nearly all of its time is Java's start and the first run of
Spark's own code, which Java's quick compiler makes twice as fast; jobs that run for long are slower with it.
"""


def settings(master: str, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a session on this master."""
    chosen = dict(_EVERYWHERE)
    if master.startswith("local"):
        chosen |= _ON_ONE_MACHINE
        # With the default of 200 a route took nine times as long without adaptive execution, and its first run three
        # times as long with it.
        chosen["spark.sql.shuffle.partitions"] = str(2 * _cores(master))
    return chosen | dict(overrides or {})


_WHEN_JAVA_STARTS: Final = ("spark.driver.memory", "spark.driver.extraJavaOptions")


def settings_when_submitted(submitted: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a session under `spark-submit`.

    `submitted` are the settings of `spark-submit`, from its arguments and files. They take precedence over ours, and
    `overrides` over both. Settings that only count when Java starts are left out, since Java is running already.
    """
    ours = settings(submitted.get("spark.master", ""))
    left = {key: value for key, value in ours.items() if key not in submitted and key not in _WHEN_JAVA_STARTS}
    return left | dict(overrides or {})


def build_session(
    master: str = LOCAL,
    overrides: Mapping[str, str] | None = None,
    *,
    name: str = APPLICATION,
    java_output_fd: int | None = None,
) -> SparkSession:
    """Builds the session. Under `spark-submit` it uses the running JVM and its master.

    `java_output_fd`: the file descriptor for everything that the JVM prints. Without it the JVM shares the outputs of
    this process, and its messages would be mixed with an answer on standard output.
    """
    if is_submitted():
        master = ""
        gateway = None if _java.is_running else launch_gateway()  # type: ignore[no-untyped-call]
        chosen = settings_when_submitted(_submitted(gateway), overrides)
    else:
        os.environ["JAVA_HOME"] = str(find_java_home())
        chosen = settings(master, overrides)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # By default Spark starts the first python3 on the PATH, which may not have our packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        else:
            chosen[PY_FILES] = with_own_package(chosen.get(PY_FILES, ""))
        chosen |= {"spark.master": master, "spark.app.name": name}
        gateway = None if _java.is_running else _start_java(chosen, java_output_fd)
    if gateway is not None:
        _java.is_running = True
        SparkContext(conf=SparkConf().setAll([("spark.app.name", name), *chosen.items()]), gateway=gateway)
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@dataclass
class _Java:
    """The JVM of this process. It outlives the session, and the next session uses it."""

    is_running: bool = False


_java: Final = _Java()


def with_own_package(py_files: str) -> str:
    """Adds this package's zip to the Python files for executors, which need the package.

    The driver has the package installed: Spark's streaming planner is a Python process that does not see these files.
    """
    return ",".join([str(zip_own_package()), *filter(None, py_files.split(","))])


def is_submitted() -> bool:
    """Whether `spark-submit` started this program, so that Java is running already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted(gateway: JavaGateway | None) -> dict[str, str]:
    """The settings of `spark-submit`. A JVM that runs a session already has them, too."""
    if gateway is None:
        return dict(SparkConf().getAll())
    # A line for each setting.
    lines = gateway.jvm.org.apache.spark.SparkConf().toDebugString().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _start_java(chosen: Mapping[str, str], output_fd: int | None) -> JavaGateway:
    """Starts the JVM as `getOrCreate` would, but with other outputs and in a process group of its own.

    A SIGTERM to our process group asks for an orderly stop, for which Java must still be running. Java ends with this
    process in any case, because its standard input ends.
    """
    outputs = {} if output_fd is None else {"stdout": output_fd, "stderr": output_fd, "start_new_session": True}
    try:
        return launch_gateway(SparkConf().setAll(list(chosen.items())), outputs)  # type: ignore[no-untyped-call]
    except BaseException as stopped:
        _kill_java(stopped)
        raise


def _kill_java(stopped: BaseException) -> None:
    """Spark removes the folder to which Java is about to write its port. Java then waits for connections without end,
    even when its standard input has ended. Only a variable of Spark's function has the process.
    """
    for frame, _ in traceback.walk_tb(stopped.__traceback__):
        process = frame.f_locals.get("proc")
        if isinstance(process, subprocess.Popen):
            process.kill()


def _cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1
