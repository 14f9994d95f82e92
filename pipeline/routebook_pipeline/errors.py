"""Everything that can go wrong, by the exit code it ends the command with."""

import re
from typing import Final

MAKE_ROOM: Final = "Make room there; what was not committed is not in the lake, and nothing is lost."
"""What to do about a disk that is full."""


class PipelineError(Exception):
    """Says what is wrong, what is allowed and what to do, in one or two sentences."""

    exit_code: int


class AnswerIsNoError(PipelineError):
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


def told_by_spark(error: BaseException) -> PipelineError | None:
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
