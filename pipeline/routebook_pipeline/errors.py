"""Everything that can go wrong, by the exit code it ends the command with.

What Spark, Java and their Python workers raise, as one sentence and an exit code.

An error of ours may have travelled through a Python worker and the JVM; what is left of it is its class and text inside
somebody's stack trace.
"""

import re
from typing import Final

MAKE_ROOM: Final = "Make room there; what was not committed is not in the lake, and nothing is lost."
"""What to do about a disk that is full."""


class PipelineError(Exception):
    """Says what is wrong, what is allowed and what to do, in one or two sentences."""

    exit_code: int


class NegativeAnswerError(PipelineError):
    """No such route, not complete, not ok, objective missed."""

    exit_code = 1


class WrongUsageError(PipelineError):
    exit_code = 2


class UnreachableError(PipelineError):
    """The store, the lake or Java."""

    exit_code = 3


class HistoryError(PipelineError):
    """The history is missing in part, or it is another one: nothing was written past it."""

    exit_code = 4


class HistoryMissingError(HistoryError):
    """Entries that were never read are gone from the stream."""

    def __init__(self, namespace: str, first: int, last: int) -> None:
        super().__init__(
            f"RB_MISSING: the changes {first} to {last} ({last - first + 1}) of namespace {namespace!r} are no longer "
            "in the stream. Go on past the hole with `--on-loss record`, or import them from an export first."
        )
        self.namespace, self.first, self.last = namespace, first, last


class HistoryForkError(HistoryError):
    """The store lost its tail, or was emptied: the versions behind our place are used a second time."""

    def __init__(self, namespace: str, ours: int, newest: int) -> None:
        super().__init__(
            f"RB_FORK: the lake holds namespace {namespace!r} up to version {ours}, and the stream, at {newest}, "
            "does not continue it: the store lost its last changes or was emptied. Accept the new history with "
            "`routebook pipeline run rebase`; what the lake holds stays."
        )
        self.namespace, self.ours, self.newest = namespace, ours, newest


_TOLD: Final = re.compile(r"routebook_pipeline\.errors\.(?P<kind>\w+Error): (?P<text>.+)")
_MISSING: Final = re.compile(r"RB_MISSING: the changes (\d+) to (\d+) .* of namespace '([^']*)'")
_FORK: Final = re.compile(r"RB_FORK: the lake holds namespace '([^']*)' up to version (\d+), and the stream, at (\d+),")


def unwrap_spark_error(error: BaseException) -> PipelineError | None:
    """The error of ours that Spark wrapped: what ends a Python process of Spark arrives as the text of its traceback.

    None when there is none in it.
    """
    if isinstance(error, PipelineError):
        return error
    text = str(error)
    if found := _FORK.search(text):
        return HistoryForkError(found[1], int(found[2]), int(found[3]))
    if found := _MISSING.search(text):
        return HistoryMissingError(found[3], int(found[1]), int(found[2]))
    if found := _TOLD.search(text):
        kind = {"WrongUsageError": WrongUsageError, "UnreachableError": UnreachableError}.get(found["kind"])
        return kind(found["text"]) if kind else None
    return None


_MISSING_FILE: Final = re.compile(
    r"(?:FILE_NOT_EXIST|FileNotFoundException|does not exist)[^\n]*?((?:\w+:/|/)\S+\.parquet)"
)
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_WRITING_TO: Final = re.compile(r"writing rows to (\S+?)\.?\s")
_LOST_JAVA: Final = ("Py4JNetworkError", "Answer from Java side is empty", "Java side is no longer there")
ADVICE: Final = "`--debug` shows everything."


def translate_error(error: BaseException) -> PipelineError | None:
    """None: not of Spark or Java, but a mistake of ours, whose stack trace is wanted."""
    at: BaseException | None = error
    while at is not None:
        # What is raised while cleaning up behind a dead Java hides what was first.
        known = _known(at)
        if known is not None:
            return known
        at = at.__cause__ or at.__context__
    return None


def _known(error: BaseException) -> PipelineError | None:
    module = type(error).__module__.split(".")[0]
    text = str(error)
    known = unwrap_spark_error(error) or _lost(text) or _full(text)
    if known is not None:
        return known
    if type(error).__name__ == "Py4JNetworkError" or (module == "py4j" and any(one in text for one in _LOST_JAVA)):
        return UnreachableError(f"Java ended while it worked. Is there memory enough for it? {ADVICE}")
    if "JAVA_GATEWAY_EXITED" in text:
        return UnreachableError(
            f"Java did not start. Is there memory enough for it (--conf spark.driver.memory=1g)? {ADVICE}"
        )
    if module in {"pyspark", "py4j"}:
        return UnreachableError(f"Spark failed: {_first_line(text).rstrip('.')}. {ADVICE}")
    return None


def _lost(text: str) -> PipelineError | None:
    found = _MISSING_FILE.search(text)
    if found is None:
        return None
    return UnreachableError(
        f"A file of the table is missing: {found[1].rstrip('.,')}. Nothing is answered from the rest: bring the file "
        "back from a backup, or restore the lake to an earlier version."
    )


def _full(text: str) -> PipelineError | None:
    found = _FULL.search(text)
    if found is None:
        return None
    place = _WRITING_TO.search(text)
    where = place[1] if place else "the lake, or of Spark's own files (--conf spark.local.dir=FOLDER)"
    return UnreachableError(f"{found[0]}, on the disk of {where}. {MAKE_ROOM}")


def _first_line(text: str) -> str:
    """Spark's own line, without the Java class in front, or the cause when there is one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    line = (causes or lines or ["without a word."])[-1 if causes else 0]
    line = re.sub(r"^(?:[a-z]\w*\.)+\w+(?:Exception|Error): ", "", line)
    return line if len(line) <= 400 else f"{line[:400]}…"
