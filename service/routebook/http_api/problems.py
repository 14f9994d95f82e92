"""Error responses as `application/problem+json` (RFC 9457), and the only table from errors to HTTP statuses.

Programs compare `type`, a short stable word. `detail` says what happened, with values; `advice` says what to do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from routebook.errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    LimitError,
    NotFoundError,
    NotReadyError,
    NotSeenYetError,
    PastUnknownError,
    RefusedError,
    RoutebookError,
    SettingsError,
    StoreError,
    StoreRefusalError,
    StoreUnavailableError,
)
from routebook.observability.metrics import reason_of

MEDIA_TYPE: Final = "application/problem+json"

REFUSAL_REASON: Final = "routebook.refusal_reason"
"""Scope key: the metric's reason for an error of the route table. `MetricsMiddleware` reads it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: its `type`, its HTTP status, its title, and additional headers."""

    type: str
    status: int
    title: str
    headers: Mapping[str, str] = field(default_factory=dict)


_RETRY_SOON: Final = {"Retry-After": "1"}
_CLOSE: Final = {"Connection": "close"}

BROKEN_JSON = Kind("broken-json", 400, "The body is not JSON")
BAD_REQUEST = Kind("bad-request", 400, "The request cannot be understood")
MISSING_TOKEN = Kind("token-missing", 401, "A token is missing", {"WWW-Authenticate": 'Bearer realm="routebook"'})
WRONG_TOKEN = Kind(
    "token-wrong", 401, "The token is wrong", {"WWW-Authenticate": 'Bearer realm="routebook", error="invalid_token"'}
)
FORBIDDEN = Kind("forbidden", 403, "Not allowed")
FOREIGN_ORIGIN = Kind("foreign-origin", 403, "Not allowed for pages of other sites")
NOT_FOUND = Kind("not-found", 404, "Not in the route table")
HISTORY_TOO_SHORT = Kind("history-too-short", 404, "The history does not reach back that far")
UNKNOWN_BROKER = Kind("unknown-broker", 404, "No such broker is registered")
NO_REPORTS = Kind("no-reports-folder", 404, "No readable folder with reports")
NO_SESSION = Kind("no-pipeline-session", 404, "No warm session of the pipeline is configured")
UNKNOWN_PAST = Kind("past-unknown", 404, "The lake does not have that time")
NO_SUCH_PATH = Kind("no-such-path", 404, "There is nothing at this path")
WRONG_METHOD = Kind("method-not-allowed", 405, "This path does not support that method")
TOO_SLOW = Kind("request-too-slow", 408, "The request did not arrive in time", _CLOSE)
REFUSED = Kind("refused", 409, "The rules of the route table do not allow it")
CONFLICT = Kind("conflict", 409, "Something else has it already")
TOO_LARGE = Kind("body-too-large", 413, "The body is larger than allowed", _CLOSE)
WRONG_HOST = Kind("wrong-host", 421, "The request is for another host")
INVALID = Kind("invalid-input", 422, "A value is not allowed")
LIMIT = Kind("limit-reached", 422, "A limit does not allow it")
TOO_MANY_SIGN_INS = Kind("too-many-sign-ins", 429, "Too many wrong tokens came from this address", _RETRY_SOON)
TOO_MANY = Kind("too-many-requests", 429, "A limit of this worker is reached", _RETRY_SOON)
HEADERS_TOO_LARGE = Kind("headers-too-large", 431, "The headers are larger than allowed", _CLOSE)
INTERNAL = Kind("internal-error", 500, "Internal error")
NOT_READY = Kind("not-ready", 503, "The route table may be incomplete or outdated", _RETRY_SOON)
STORE_UNAVAILABLE = Kind("store-unavailable", 503, "The store does not answer", _RETRY_SOON)
STORE_TROUBLE = Kind("store-trouble", 503, "The store refused the command", _RETRY_SOON)
BUSY = Kind("busy", 503, "A limit of this worker is reached", _RETRY_SOON | _CLOSE)
SESSION_UNAVAILABLE = Kind("pipeline-unavailable", 503, "The pipeline cannot answer", {"Retry-After": "10"})
STOPPING = Kind("stopping", 503, "This worker is stopping", _RETRY_SOON | _CLOSE)
QUESTION_TOO_SLOW = Kind("question-too-slow", 504, "The answer takes longer", {"Retry-After": "5"})
NOT_SEEN_YET = Kind("not-seen-yet", 504, "This worker has not seen that version", _RETRY_SOON)

# The first matching class wins, so a subclass comes before its base class.
_BY_ERROR: Final[tuple[tuple[type[RoutebookError], Kind], ...]] = (
    (InvalidInputError, INVALID),
    (LimitError, LIMIT),
    (BusyError, BUSY),
    (SettingsError, INVALID),
    (NotFoundError, NOT_FOUND),
    (PastUnknownError, HISTORY_TOO_SHORT),
    (NotReadyError, NOT_READY),
    (NotSeenYetError, NOT_SEEN_YET),
    (RefusedError, REFUSED),
    (ConflictError, CONFLICT),
    (ForbiddenError, FORBIDDEN),
    (StoreRefusalError, STORE_TROUBLE),
    (StoreUnavailableError, STORE_UNAVAILABLE),
    (StoreError, STORE_TROUBLE),
    (RoutebookError, INTERNAL),
)

_BY_STATUS: Final = {404: NO_SUCH_PATH, 405: WRONG_METHOD, 413: TOO_LARGE}


class Problem(Exception):  # noqa: N818 - named after the response it becomes
    """An error of the HTTP port itself. Errors of the route table are classes in `routebook.errors`."""

    def __init__(self, kind: Kind, detail: str, *, advice: str = "") -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.advice = advice


def problem_response(kind: Kind, detail: str, *, advice: str = "", **members: Any) -> Response:
    body = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": detail}
    if advice:
        body["advice"] = advice
    content = json.dumps(body | members, ensure_ascii=True).encode("ascii")
    return Response(content, kind.status, headers=dict(kind.headers), media_type=MEDIA_TYPE)


def kind_of(error: RoutebookError) -> Kind:
    kind = next(kind for error_class, kind in _BY_ERROR if isinstance(error, error_class))
    if isinstance(error, NotFoundError):
        return Kind(f"{error.what.replace(' ', '-')}-not-found", kind.status, kind.title)
    return kind


def error_response(error: RoutebookError) -> Response:
    kind = kind_of(error)
    # The store's own message may contain hosts and keys, so it is only logged.
    if kind is STORE_TROUBLE:
        return problem_response(kind, "The store refused the command.", advice="Run `routebook doctor`.")
    if isinstance(error, LimitError):
        return problem_response(kind, error.message, advice=error.advice, setting=error.setting, limit=error.limit)
    if isinstance(error, NotFoundError):
        return problem_response(kind, error.message, advice=error.advice, name=error.name)
    return problem_response(kind, error.message, advice=error.advice)


async def handle_routebook_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RoutebookError)  # noqa: S101 - registered for this class only
    request.scope[REFUSAL_REASON] = reason_of(error)
    return error_response(error)


async def handle_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this class only
    del request
    return problem_response(error.kind, error.detail, advice=error.advice)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths, wrong methods, and bodies that FastAPI cannot read."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    kind = _BY_STATUS.get(error.status_code, BAD_REQUEST)
    path = request.url.path[:200]
    if kind is NO_SUCH_PATH:
        return problem_response(kind, f"There is nothing at {path!r}.", advice="See /docs for all paths.")
    if kind is WRONG_METHOD:
        allowed = (error.headers or {}).get("Allow", "")
        response = problem_response(
            kind,
            f"{path!r} does not support {request.method}.",
            advice=f"Allowed: {allowed}." if allowed else "",
        )
        if allowed:
            response.headers["Allow"] = allowed
        return response
    return problem_response(kind, str(error.detail), advice="Send one JSON object, in UTF-8.")


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Names the place of each fault and what is allowed. It never repeats the input, which may be secret or large."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    del request
    faults = error.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        reason = faults[0].get("ctx", {}).get("error", "it cannot be parsed")
        return problem_response(
            BROKEN_JSON, f"The body is not JSON: {reason}.", advice="Send one JSON object, in UTF-8."
        )
    errors = [{"where": _location(fault["loc"]), "fault": _message(fault)} for fault in faults[:20]]
    detail = "; ".join(f"{item['where']}: {item['fault']}" for item in errors[:3])
    advice = "See /docs for the fields and their limits."
    return problem_response(INVALID, f"{detail}.", advice=advice, errors=errors)


async def handle_unexpected_error(request: Request, error: Exception) -> Response:
    """The peer learns no detail of an internal failure; the server logs it with its traceback."""
    del request, error
    return problem_response(INTERNAL, "An internal error occurred.", advice="See the log of this worker.")


def _location(location: tuple[int | str, ...]) -> str:
    """The path of a field, in printable ASCII: the keys of an object come from the client."""
    text = ".".join(str(part) for part in location)[:200]
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _message(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    return str(fault["msg"])[:300].encode("ascii", "backslashreplace").decode("ascii")
