"""What a handler is given, and what it returns: a reply that is not bytes yet."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from routebook.errors import BusyError, ForbiddenError, InvalidInputError, RefusedError, RoutebookError
from routebook.listeners.peers import Peer
from routebook.model.names import Caller
from routebook.protocol.body_json import BodyError, ChecksumError
from routebook.protocol.frame import Ext, Request, RequestCode, ResponseCode
from routebook.protocol.headers import read_long, read_text
from routebook.registry.sessions import SessionConnection
from routebook.remoting.work_queue import Turn

REGISTER_FAILED = "register broker failed"
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"
GO_AWAY = "please go away"


class Reply(NamedTuple):
    code: int = ResponseCode.SUCCESS
    ext: Ext | None = None
    """{} for an answer with a typed header that has no fields."""
    remark: str | None = None
    body: bytes = b""


def reply_to_error(error: RoutebookError) -> Reply:
    """Code 16 for a missing permission. Code 1 for every other error, after which a peer keeps what it has. RocketMQ
    sends the text of a Java exception, which peers only log.
    """
    # RocketMQ has begun its answer to a registration when it finds these two errors: hence the empty typed header.
    if isinstance(error, RefusedError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=REGISTER_FAILED)
    if isinstance(error, ChecksumError):
        return Reply(ResponseCode.SYSTEM_ERROR, ext={}, remark=error.remark)
    if isinstance(error, BusyError):
        return Reply(ResponseCode.SYSTEM_BUSY, remark=str(error))
    if isinstance(error, BodyError):
        return Reply(ResponseCode.SYSTEM_ERROR, remark=error.remark)
    if isinstance(error, ForbiddenError):
        return Reply(ResponseCode.NO_PERMISSION, remark=str(error))
    return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))


def not_supported(code: int) -> Reply:
    """The leading blank is RocketMQ's."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported")


def overloaded() -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, remark=OVERLOADED)


def too_many_requests(setting: str, limit: float) -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, remark=f"[OVERLOAD]{setting} allows {limit:g} requests a second")


def go_away() -> Reply:
    return Reply(ResponseCode.GO_AWAY, remark=GO_AWAY)


CHANGING: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""Requests that change something; their refusals are audited."""

_OBJECT_FIELDS: Final = ("clusterName", "brokerName", "brokerId", "brokerAddr", "topic", "namespace", "key")


def object_of(request: Request) -> str:
    """What a request is about, as the audit shows it: names from the header, and never the value of a key."""
    named = ((name, read_text(request.ext, name)) for name in _OBJECT_FIELDS)
    return " ".join(f"{name}={text[:100]}" for name, text in named if text)


@dataclass(frozen=True, slots=True)
class RequestContext:
    request: Request
    connection: SessionConnection
    caller: Caller
    answer_now: Callable[[Reply], None]
    """For a handler that answers before it has finished; it then returns None."""
    turn: Turn
    costs: Peer
    """What the address of the peer has cost."""

    def text(self, name: str) -> str | None:
        return read_text(self.request.ext, name)

    def body_within(self, limit_bytes: int) -> bytes:
        """For bodies that are parsed in one go. No real peer's is longer, and a longer one could delay lookups."""
        body = self.request.body
        if len(body) > limit_bytes:
            raise InvalidInputError("body", f"{len(body)} bytes", f"at most {limit_bytes} bytes for this request")
        return body

    def required(self, name: str) -> str:
        """Where RocketMQ would fail on a null pointer, or store something without a name."""
        text = self.text(name)
        if not text:
            raise InvalidInputError(name, text, "a text; the header has none")
        return text

    def required_long(self, name: str) -> int:
        number = read_long(self.request.ext, name, None)
        if number is None:
            raise InvalidInputError(name, self.text(name), "a whole number of 64 bits")
        return number


Handler = Callable[[RequestContext], Awaitable[Reply | None]]
