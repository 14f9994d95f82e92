"""Errors of Spark, Java and their workers become one sentence and an exit code."""

import errno
import socket
import subprocess
import sys

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from routebook_pipeline.cli.spark import check_master_answers
from routebook_pipeline.errors import MAKE_ROOM, HistoryForkError, UnreachableError, translate_error
from routebook_pipeline.lake.folders import reaching

FORK = HistoryForkError("ns", 9, 3)


def spark_error(text: str) -> PySparkException:
    return PySparkException(message=text)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (f"[STREAM_FAILED] Query terminated\nTraceback:\n\tat x\nCaused by: {FORK}\n\tat y", 4, str(FORK)),
        (
            "routebook_pipeline.errors.WrongUsageError: The store's address has no host\n",
            2,
            "The store's address has no host",
        ),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Error reading file:/lake/a/day=2026-01-01/part-0.zstd.parquet. File",
            3,
            "file:/lake/a/day=2026-01-01/part-0.zstd.parquet",
        ),
        (
            "Job aborted\nCaused by: java.io.IOException: Is a directory\n\tat x",
            3,
            "Spark failed: Is a directory. `--d",
        ),
    ],
)
def test_the_message_is_the_cause_without_the_stack(text: str, code: int, message: str) -> None:
    error = translate_error(spark_error(text))
    assert error is not None
    assert error.exit_code == code
    assert message in str(error)
    assert "\n" not in str(error)


FULL_WHILE_WRITING = """An error occurred while calling o62.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/a. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:823)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
\t... 1 more
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:549)
\t\tCaused by: java.io.IOException: No space left on device
\t\t\t... 44 more
"""
FULL_WHILE_SPILLING = """An error occurred while calling o144.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat org.apache.spark.storage.TimeTrackingOutputStream.write(TimeTrackingOutputStream.java:59)
"""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (FULL_WHILE_WRITING, "file:/lake/a. "),
        (FULL_WHILE_SPILLING, "the lake or of Spark's temporary files (--conf spark.local.dir=FOLDER). "),
    ],
)
def test_a_full_disk_is_reported_with_advice(text: str, where: str) -> None:
    """The errors of Spark for the disk of the lake, and for that of its temporary files."""
    error = translate_error(spark_error(text))
    assert isinstance(error, UnreachableError)
    assert str(error) == f"No space left on device, on the disk of {where}{MAKE_ROOM}"


def test_a_full_disk_gives_the_same_advice_without_spark() -> None:
    with pytest.raises(UnreachableError) as raised, reaching("/lake", "written"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(raised.value).endswith(MAKE_ROOM)


@pytest.mark.parametrize(
    "text", ["Answer from Java side is empty", "py4j.reflection.TypeUtil.isInstanceOf does not exist in the JVM"]
)
def test_the_end_of_java_names_memory_and_the_setting(text: str) -> None:
    error = translate_error(Py4JError(text))
    assert isinstance(error, UnreachableError)
    assert "memory" in str(error)
    assert "--conf spark.driver.memory=" in str(error)


_OUT_OF_MEMORY = """
from routebook_pipeline.errors import translate_error
from routebook_pipeline.session import build_session
spark = build_session("local[1]", {"spark.driver.memory": "512m"})
try:
    spark.range(2000).selectExpr("collect_list(repeat('x', 1000000 + id))").collect()
except BaseException as error:
    print(translate_error(error))
"""


@pytest.mark.slow
def test_a_jvm_without_memory_ends_with_a_message_about_memory() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _OUT_OF_MEMORY], capture_output=True, text=True, timeout=240, check=False
    )
    assert "ran out of memory. Give it more (--conf spark.driver.memory=4g)" in ended.stdout, ended


@pytest.mark.parametrize("master", ["spark://127.0.0.1:{port}", "k8s://https://127.0.0.1:{port}"])
def test_a_master_that_does_not_answer_is_named_before_java_starts(master: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        named = master.format(port=taken.getsockname()[1])
        with pytest.raises(UnreachableError, match=rf"Spark master {named} cannot be reached .*refused.*--master"):
            check_master_answers(named)
        taken.listen()
        check_master_answers(f"spark://127.0.0.1:1,127.0.0.1:{taken.getsockname()[1]}")
    check_master_answers("local[2]")
    check_master_answers("yarn")


def test_our_own_errors_are_not_changed() -> None:
    assert translate_error(FORK) is FORK


def test_a_bug_is_not_translated() -> None:
    assert translate_error(KeyError("x")) is None
