"""What Spark, Java and their Python workers raise, as one sentence and an exit code.

An error of ours may have travelled through a Python worker and the JVM; what is left of it is its class and text inside
somebody's stack trace.
"""

import re
from typing import Final

from routebook_pipeline.errors import MAKE_ROOM, PipelineError, UnreachableError, told_by_spark

_MISSING_FILE: Final = re.compile(
    r"(?:FILE_NOT_EXIST|FileNotFoundException|does not exist)[^\n]*?((?:\w+:/|/)\S+\.parquet)"
)
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_WRITING_TO: Final = re.compile(r"writing rows to (\S+?)\.?\s")
_LOST_JAVA: Final = ("Py4JNetworkError", "Answer from Java side is empty", "Java side is no longer there")
ADVICE: Final = "`--debug` shows everything."


def translate(error: BaseException) -> PipelineError | None:
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
    known = told_by_spark(error) or _lost(text) or _full(text)
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
