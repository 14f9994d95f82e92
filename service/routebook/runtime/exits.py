"""Exit codes, as the contract promises them."""

from typing import Final

from routebook.errors import (
    InvalidInputError,
    NotReadyError,
    NotSeenYetError,
    PeerUnavailableError,
    RoutebookError,
    SettingsError,
    StoreError,
)

DONE: Final = 0
ANSWER_IS_NO: Final = 1
WRONG_USAGE: Final = 2
UNREACHABLE: Final = 3
HISTORY_MISSING: Final = 4


class ServiceUnreachableError(RoutebookError):
    """The service that a command asks does not answer, or cannot answer now."""


class AnswerIsNoError(RoutebookError):
    """The service answered, and the answer is no."""


class HistoryMissingError(RoutebookError):
    """The changes asked for are no longer kept."""


def exit_code_of(error: RoutebookError) -> int:
    match error:
        case SettingsError() | InvalidInputError():
            return WRONG_USAGE
        case StoreError() | ServiceUnreachableError() | PeerUnavailableError() | NotReadyError() | NotSeenYetError():
            return UNREACHABLE
        case HistoryMissingError():
            return HISTORY_MISSING
        case _:
            return ANSWER_IS_NO
