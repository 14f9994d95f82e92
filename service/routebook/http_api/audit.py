"""The audit of the HTTP port: refused and failed requests, and every administrative request.

The middleware sees the status and the problem of every response, so no path operation has to report its own refusals.
The caller comes from `callers.py`. Changes have a record of their own with their values before and after, written when
the history's entry arrives (`background/change_log.py`).
"""

import json
from dataclasses import dataclass
from typing import Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routebook.model.names import ANONYMOUS, Caller
from routebook.observability.audit import Audit

_NOTE: Final = "routebook.audit_note"
_WRITES: Final = frozenset({"PUT", "POST", "PATCH", "DELETE"})
_PERMISSION_STATUSES: Final = frozenset({401, 403, 429})
_UNKNOWN_PLACE: Final = frozenset({404, 405})
"""Without a caller, such a response is to a path that does not exist, which changes nothing and guards nothing."""
MAX_PROBLEM_BYTES: Final = 8_192


@dataclass(slots=True)
class AuditNote:
    """What the inner layers report about a request. They work on copies of the scope, which share this object."""

    caller: Caller | None = None
    what: str = ""
    """What the request is about, if its path does not say it."""
    reason: str = ""
    """Why it is refused, if its response is not a problem in JSON."""


def note_of(scope: Scope) -> AuditNote:
    return cast("AuditNote", scope.setdefault(_NOTE, AuditNote()))


class AuditMiddleware:
    def __init__(self, app: ASGIApp, audit: Audit, worker: str) -> None:
        self._app = app
        self._audit = audit
        self._worker = worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = scope[_NOTE] = AuditNote()
        status, body = 0, b""

        async def send_and_note_problem(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= 400 and not body:
                body = message.get("body", b"")
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_problem)
        finally:
            self._record(scope, note, status, body)

    def _record(self, scope: Scope, note: AuditNote, status: int, body: bytes) -> None:
        caller = note.caller
        what = note.what or object_of(scope)
        is_write = scope["method"] in _WRITES
        if 0 < status < 400:
            if caller is not None and caller.is_operator:
                is_dry_run = b"dry_run=" in scope["query_string"]
                self._audit.done(caller, what=what + (" (dry run)" if is_dry_run else ""))
            return
        if not (is_write or status in _PERMISSION_STATUSES) or (caller is None and status in _UNKNOWN_PLACE):
            return
        if caller is None:
            verb = f"{scope['method'].lower()[:10]} request"
            caller = Caller(ANONYMOUS, source_of(scope), worker=self._worker, port="http", verb=verb)
        if status == 0 or status >= 500:
            self._audit.failed(caller, what=what, reason=note.reason or _reason(body) or "no response")
        else:
            self._audit.refused(caller, what=what, reason=note.reason or _reason(body) or f"status {status}")


def source_of(scope: Scope) -> str:
    """The peer's address, in the form used in the change history."""
    if scope.get("client") is None:
        return "unix"
    host, port = scope["client"]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def object_of(scope: Scope) -> str:
    """The path without the query, which may contain anything."""
    return str(scope["path"])[:300].encode("utf-8", "backslashreplace").decode()


def _reason(body: bytes) -> str:
    """Type and detail of a problem (`problems.py`)."""
    if len(body) > MAX_PROBLEM_BYTES:
        return ""
    try:
        problem = json.loads(body)
        return f"{problem['type']}: {problem['detail']}"
    except (ValueError, TypeError, KeyError):
        return ""
