"""One connection to a peer that we call: requests out, responses back to whoever waits for them.

Every call ends: with its response, at its deadline, or with the connection, whichever comes first. A response that
comes after its deadline is dropped. The client follows nothing by itself: 1500 (go away) is a response like any other.
"""

import asyncio
import logging
import ssl
from types import TracebackType
from typing import Final, Self, cast

from routebook.errors import PeerUnavailableError
from routebook.model.names import check_address
from routebook.protocol.command import Ext, Request, Response
from routebook.protocol.connection import Connection
from routebook.protocol.frame import FrameLimits, PeerProtocolError

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
"""What RocketMQ's own clients give a name server."""
CLOSING_MS: Final = 1000
"""For what was told and still lies in the buffer; then the connection is cut."""

_LIMITS: Final = FrameLimits(max_frame_bytes=64 * 1024 * 1024)
"""Above the 16 MiB that servers take: a reference server does not bound what it sends."""


class RemotingClient:
    """Calls may be made at the same time. `connect` makes one; once closed or broken it stays so."""

    def __init__(self, address: str, link: "_Link") -> None:
        self.address = address
        self._link = link

    @classmethod
    async def connect(cls, address: str, *, timeout_ms: int = TIMEOUT_MS, tls: ssl.SSLContext | None = None) -> Self:
        """PeerUnavailableError when there is no connection (with `tls`: no encrypted one) within the time."""
        host, _, port = check_address("address", address).rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, link = await loop.create_connection(lambda: _Link(address), host.strip("[]"), int(port), ssl=tls)
        except TimeoutError as error:
            raise _unavailable(address, f"no connection within {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # also ssl.SSLError, and a host that cannot be a name
            raise _unavailable(address, str(error) or type(error).__name__) from error
        return cls(address, link)

    @property
    def is_open(self) -> bool:
        return self._link.failure is None

    async def ask(
        self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> Response:
        """The response, whatever its code."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._link.ask(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"no answer to request {code} within {timeout_ms} ms") from error

    async def tell(self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS) -> None:
        """A oneway request: returns when it is handed to the connection; nobody says whether it arrived."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._link.tell(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"request {code} not taken within {timeout_ms} ms") from error

    async def close(self) -> None:
        """What was told is still sent; whoever waits for a response gets PeerUnavailableError."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Link(asyncio.Protocol):
    """The adapter between `wire.Connection` and a transport."""

    def __init__(self, address: str) -> None:
        self.failure: PeerUnavailableError | None = None
        """Why nothing can be asked any more."""
        self._address = address
        self._connection = Connection(_LIMITS)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def ask(self, code: int, ext: Ext | None, body: bytes) -> Response:
        transport = await self._ready()
        opaque, sent = self._connection.ask(code, ext=ext, body=body)
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = response
        transport.write(sent)
        try:
            return await response
        finally:
            self._waiting.pop(opaque, None)
            self._connection.forget(opaque)

    async def tell(self, code: int, ext: Ext | None, body: bytes) -> None:
        (await self._ready()).write(self._connection.tell(code, ext=ext, body=body))

    async def close(self) -> None:
        self._fail("closed by us")
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSING_MS / 1000):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self._lost.wait()

    async def _ready(self) -> asyncio.Transport:
        """Waits while the peer does not read what was sent before."""
        await self._writable.wait()
        if self.failure is not None or self._transport is None:
            raise self._why()
        return self._transport

    def _why(self) -> PeerUnavailableError:
        """Another one each time: raised twice, one error would collect the traces of all who raised it."""
        reason = self.failure.reason if self.failure else "not connected"
        return _unavailable(self._address, reason)

    def _fail(self, reason: str) -> None:
        """The first reason counts; whatever follows is its consequence."""
        if self.failure is not None:
            return
        self.failure = _unavailable(self._address, reason)
        self._writable.set()
        waiting, self._waiting = self._waiting, {}
        for response in waiting.values():
            if not response.done():
                response.set_exception(self._why())

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive(data):
            match event:
                case Response():
                    response = self._waiting.pop(event.opaque, None)
                    if response is not None and not response.done():
                        response.set_result(event)
                case PeerProtocolError():
                    self._fail(f"it broke the protocol: {event.message}")
                    if self._transport is not None:
                        self._transport.abort()
                case Request():
                    _log.debug("%s asks us %d: a caller answers nothing", self._address, event.code)

    def eof_received(self) -> bool:
        self._fail("it closed the connection")
        return False  # asyncio closes our side, too

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection broke: {exc}" if exc else "it closed the connection")
        self._lost.set()

    def pause_writing(self) -> None:
        if self.failure is None:
            self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _unavailable(address: str, reason: str) -> PeerUnavailableError:
    return PeerUnavailableError(address, reason)
