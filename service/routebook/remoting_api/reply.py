"""What a handler answers, before it is bytes."""

from typing import NamedTuple

from routebook.errors import RefusedError, RoutebookError
from routebook.wire.bodies.body_error import BodyError, ChecksumError
from routebook.wire.codes import ResponseCode
from routebook.wire.command import Ext

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
