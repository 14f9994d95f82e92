"""Why a request was answered with an error, in few enough words to be the label of a counter."""

from typing import Final, Literal

from routebook.errors import (
    ForbiddenError,
    NotFoundError,
    NotReadyError,
    NotSeenYetError,
    RefusedError,
    RoutebookError,
    StoreError,
)

Reason = Literal["store", "not_ready", "refused", "forbidden", "not_found", "invalid", "failed"]
REASONS: Final[tuple[Reason, ...]] = ("store", "not_ready", "refused", "forbidden", "not_found", "invalid", "failed")

# The first class that fits wins.
_BY_ERROR: Final[tuple[tuple[type[RoutebookError], Reason], ...]] = (
    (StoreError, "store"),
    (NotReadyError, "not_ready"),
    (NotSeenYetError, "not_ready"),
    (RefusedError, "refused"),
    (ForbiddenError, "forbidden"),
    (NotFoundError, "not_found"),
    (RoutebookError, "invalid"),
)


def reason_of(error: Exception) -> Reason:
    """`failed` is what nobody foresaw."""
    return next((reason for error_class, reason in _BY_ERROR if isinstance(error, error_class)), "failed")
