"""What Spark, Java and their workers raise, as a sentence and an exit code."""

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from routebook_pipeline.cli.spark_errors import translate
from routebook_pipeline.errors import HistoryForkError, UnreachableError


def spark_says(text: str) -> PySparkException:
    return PySparkException(message=text)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n"
            "routebook_pipeline.errors.HistoryMissingError: RB_MISSING: the changes 3 to 4 are gone.\n\tat",
            4,
            "RB_MISSING: the changes 3 to 4 are gone.",
        ),
        ("Caused by: RB_FORK: the lake holds more", 4, "RB_FORK: the lake holds more"),
        ("… RB_UNREACHABLE: the store does not answer", 3, "RB_UNREACHABLE: the store does not answer"),
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
    fork = HistoryForkError("ns", 9, 3)
    assert translate(fork) is fork


def test_a_mistake_of_ours_keeps_its_stack() -> None:
    assert translate(KeyError("x")) is None
