"""The errors that end a command, each with its exit code, and how errors of Spark and Java become one of them.

An error of ours that was raised in a Python worker of Spark reaches us through the JVM. All that is left of it then is
its class name and its text inside a stack trace.
"""

import re
from typing import Final

MAKE_ROOM: Final = "Make room there. Nothing is lost: the lake holds only complete commits."
"""Advice for a full disk."""


class PipelineError(Exception):
    """Its text says what is wrong, what is allowed and what to do, in one or two sentences."""

    exit_code: int


class NegativeAnswerError(PipelineError):
    """The command worked, and the answer is no: no such route, not complete, not ok, or objective missed."""

    exit_code = 1


class WrongUsageError(PipelineError):
    exit_code = 2


class UnreachableError(PipelineError):
    """The store, the lake or Java cannot be used."""

    exit_code = 3


class HistoryError(PipelineError):
    """Part of the history is missing, or the stream holds another history. Nothing was written past that point."""

    exit_code = 4


class HistoryMissingError(HistoryError):
    """The stream was trimmed before these entries were read."""

    def __init__(self, namespace: str, first: int, last: int) -> None:
        super().__init__(
            f"RB_MISSING: the changes {first} to {last} ({last - first + 1}) of namespace {namespace!r} are no longer "
            "in the stream. Import them from an export, or continue past the hole with `--on-loss record`."
        )
        self.namespace, self.first, self.last = namespace, first, last


class HistoryForkError(HistoryError):
    """The store lost its last changes or was emptied, so it assigns the versions after ours a second time."""

    def __init__(self, namespace: str, ours: int, newest: int) -> None:
        super().__init__(
            f"RB_FORK: the lake holds namespace {namespace!r} up to version {ours}, and the stream, at {newest}, "
            "does not continue it: the store lost its last changes or was emptied. Accept the new history with "
            "`routebook pipeline run rebase`. What the lake holds is kept."
        )
        self.namespace, self.ours, self.newest = namespace, ours, newest


_WRAPPED: Final = re.compile(r"routebook_pipeline\.errors\.(?P<kind>\w+Error): (?P<text>.+)")
_MISSING: Final = re.compile(r"RB_MISSING: the changes (\d+) to (\d+) .* of namespace '([^']*)'")
_FORK: Final = re.compile(r"RB_FORK: the lake holds namespace '([^']*)' up to version (\d+), and the stream, at (\d+),")


def unwrap_spark_error(error: BaseException) -> PipelineError | None:
    """The error of ours inside an error of Spark; None when there is none.

    An exception that ends one of Spark's Python processes arrives as the text of its traceback.
    """
    if isinstance(error, PipelineError):
        return error
    text = str(error)
    if found := _FORK.search(text):
        return HistoryForkError(found[1], int(found[2]), int(found[3]))
    if found := _MISSING.search(text):
        return HistoryMissingError(found[3], int(found[1]), int(found[2]))
    if found := _WRAPPED.search(text):
        kind = {"WrongUsageError": WrongUsageError, "UnreachableError": UnreachableError}.get(found["kind"])
        return kind(found["text"]) if kind else None
    return None


_MISSING_FILE: Final = re.compile(
    r"(?:FILE_NOT_EXIST|FileNotFoundException|does not exist)[^\n]*?((?:\w+:/|/)\S+\.parquet)"
)
_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_WRITING_TO: Final = re.compile(r"writing rows to (\S+?)\.?\s")
_JAVA_ENDED: Final = (
    "Py4JNetworkError",
    "Answer from Java side is empty",
    "Java side is no longer there",
    # Py4J looks up a class of its own while it handles an error. It does not find it when the JVM has ended.
    "does not exist in the JVM",
)
_OUT_OF_MEMORY: Final = re.compile(r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|maxResultSize")
MORE_MEMORY: Final = (
    "Give it more (--conf spark.driver.memory=4g), or ask about less: a shorter window, one --topic or --broker."
)
ADVICE: Final = "`--debug` shows the stack trace."


def translate_error(error: BaseException) -> PipelineError | None:
    """None when the error is neither ours nor one of Spark or Java: then it is a bug, and its stack trace is wanted."""
    at: BaseException | None = error
    while at is not None:
        # After Java has died, an error raised during cleanup hides the first one.
        known = _as_pipeline_error(at)
        if known is not None:
            return known
        at = at.__cause__ or at.__context__
    return None


def _as_pipeline_error(error: BaseException) -> PipelineError | None:
    module = type(error).__module__.split(".")[0]
    text = _text_of(error)
    known = unwrap_spark_error(error) or _file_missing(text) or _disk_full(text)
    if known is not None:
        return known
    is_of_spark = module in {"pyspark", "py4j"}
    if is_of_spark and _OUT_OF_MEMORY.search(text):
        return UnreachableError(f"Spark ran out of memory. {MORE_MEMORY} {ADVICE}")
    if type(error).__name__ == "Py4JNetworkError" or (module == "py4j" and any(one in text for one in _JAVA_ENDED)):
        return UnreachableError(f"Java ended, most likely because it ran out of memory. {MORE_MEMORY} {ADVICE}")
    if "JAVA_GATEWAY_EXITED" in text:
        return UnreachableError(
            f"Java did not start. Is there enough memory for it (--conf spark.driver.memory=1g)? {ADVICE}"
        )
    if is_of_spark:
        return UnreachableError(f"Spark failed: {_first_line(text).rstrip('.')}. {ADVICE}")
    return None


def _text_of(error: BaseException) -> str:
    """Py4J asks Java for the text of an error, which fails when Java has ended."""
    try:
        return str(error)
    except OSError:
        return _JAVA_ENDED[0]


def _file_missing(text: str) -> PipelineError | None:
    found = _MISSING_FILE.search(text)
    if found is None:
        return None
    return table_file_missing(found[1].rstrip(".,"))


def table_file_missing(file: str) -> UnreachableError:
    return UnreachableError(
        f"A file of the table is missing: {file}. The remaining files give no complete answer: restore the file from a "
        "backup, or restore the lake to an earlier version."
    )


def _disk_full(text: str) -> PipelineError | None:
    found = _DISK_FULL.search(text)
    if found is None:
        return None
    place = _WRITING_TO.search(text)
    where = place[1] if place else "the lake or of Spark's temporary files (--conf spark.local.dir=FOLDER)"
    return UnreachableError(f"{found[0]}, on the disk of {where}. {MAKE_ROOM}")


def _first_line(text: str) -> str:
    """The message of the innermost cause, or else the first line; without the Java class in front."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = (causes or lines or ["no message."])[-1 if causes else 0]
    line = re.sub(r"^(?:[a-z]\w*\.)+\w+(?:Exception|Error): ", "", line)
    return line if len(line) <= 400 else f"{line[:400]}…"
