"""What a handler answers, before it is bytes.

What every handler is given: who asks, and over what.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from routebook.errors import InvalidInputError, RefusedError, RoutebookError
from routebook.model.names import Caller
from routebook.protocol.body_json import BodyError, ChecksumError
from routebook.protocol.command import Ext, Request, ResponseCode
from routebook.protocol.headers import read_long, read_text
from routebook.registry.sessions import HeldConnection

REGISTER_FAILED = "register broker failed"
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"
GO_AWAY = "please go away"


class Reply(NamedTuple):
    code: int = ResponseCode.SUCCESS
    ext: Ext | None = None
    """{} says that the answer has a typed header, all of whose fields are absent."""
    remark: str | None = None
    body: bytes = b""


def reply_to_error(error: RoutebookError) -> Reply:
    """Code 1 for whatever went wrong: in doubt a peer keeps what it knows. The reference sends Java's exception text,
    which peers only log.
    """
    # The reference refuses these two when it has begun its answer to a registration: hence the empty typed header.
    if isinstance(error, RefusedError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=REGISTER_FAILED)
    if isinstance(error, ChecksumError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=error.remark)
    if isinstance(error, BodyError):
        return Reply(ResponseCode.SYSTEM_ERROR, remark=error.remark)
    return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))


def not_supported(code: int) -> Reply:
    """The leading blank is the reference's."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported")


def overloaded() -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, remark=OVERLOADED)


def go_away() -> Reply:
    return Reply(ResponseCode.GO_AWAY, remark=GO_AWAY)


@dataclass(frozen=True, slots=True)
class Asking:
    request: Request
    connection: HeldConnection
    caller: Caller
    answer_now: Callable[[Reply], None]
    """For a handler that answers before it is done, and returns None in the end."""

    def text(self, name: str) -> str | None:
        return read_text(self.request.ext, name)

    def body_within(self, limit_bytes: int) -> bytes:
        """For what is read on the event loop. No peer's is longer; a stranger's could hold lookups up for seconds."""
        body = self.request.body
        if len(body) > limit_bytes:
            raise InvalidInputError("body", f"{len(body)} bytes", f"at most {limit_bytes} bytes for this request")
        return body

    def required(self, name: str) -> str:
        """Where the reference runs into a null pointer, or goes on and leaves debris."""
        text = self.text(name)
        if not text:
            raise InvalidInputError(name, text, "a text; the header has none")
        return text

    def required_long(self, name: str) -> int:
        number = read_long(self.request.ext, name, None)
        if number is None:
            raise InvalidInputError(name, self.text(name), "a whole number of 64 bits")
        return number


Handler = Callable[[Asking], Awaitable[Reply | None]]
