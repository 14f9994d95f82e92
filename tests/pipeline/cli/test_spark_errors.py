"""What Spark, Java and their workers raise, as a sentence and an exit code."""

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from routebook_pipeline.cli.spark_errors import translate
from routebook_pipeline.errors import HistoryForkError, UnreachableError

FORK = HistoryForkError("ns", 9, 3)


def spark_says(text: str) -> PySparkException:
    return PySparkException(message=text)


@pytest.mark.parametrize(
    ("text", "code", "said"),
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
        ("Job aborted\nCaused by: java.io.IOException: No space left on device\n\tat x", 3, "No space left on device"),
    ],
)
def test_the_cause_is_told_and_not_the_stack(text: str, code: int, said: str) -> None:
    error = translate(spark_says(text))
    assert error is not None
    assert error.exit_code == code
    assert said in str(error)
    assert "\n" not in str(error)


def test_java_that_died_is_unreachable() -> None:
    error = translate(Py4JNetworkError("Answer from Java side is empty"))
    assert isinstance(error, UnreachableError)


def test_an_error_of_ours_stays_itself() -> None:
    assert translate(FORK) is FORK


def test_a_mistake_of_ours_keeps_its_stack() -> None:
    assert translate(KeyError("x")) is None
