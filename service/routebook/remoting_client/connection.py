"""A client connection to a peer of the remoting protocol: sends requests and returns their responses.

Every call ends with its response, at its deadline, or when the connection is lost, whichever comes first. A response
that arrives after its deadline is dropped. The client does not act on codes: 1500 (go away) is returned like any other.
"""

import asyncio
import logging
import ssl
from types import TracebackType
from typing import Final, Self, cast

from routebook.errors import PeerUnavailableError
from routebook.model.names import check_address
from routebook.protocol.connection import Connection
from routebook.protocol.frame import Ext, FrameLimits, PeerProtocolError, Request, Response

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
"""The timeout of RocketMQ's own clients for requests to a name server."""
CLOSING_MS: Final = 1000
"""How long `close` waits for one-way requests that are still in the buffer, before it aborts the connection."""

_LIMITS: Final = FrameLimits(max_frame_bytes=64 * 1024 * 1024)
"""Above the 16 MiB that servers accept, since a reference server does not limit its own responses."""


class RemotingClient:
    """Calls may run concurrently. Once the connection is closed or broken, the client cannot be used again."""

    def __init__(self, address: str, protocol: "_ClientProtocol") -> None:
        self.address = address
        self._protocol = protocol

    @classmethod
    async def connect(cls, address: str, *, timeout_ms: int = TIMEOUT_MS, tls: ssl.SSLContext | None = None) -> Self:
        """Raises PeerUnavailableError when there is no connection (with `tls`, no encrypted one) within the time."""
        host, _, port = check_address("address", address).rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await loop.create_connection(
                    lambda: _ClientProtocol(address), host.strip("[]"), int(port), ssl=tls
                )
        except TimeoutError as error:
            raise _unavailable(address, f"no connection within {timeout_ms} ms") from error
        except (OSError, UnicodeError) as error:  # also ssl.SSLError, and a host that cannot be a name
            raise _unavailable(address, str(error) or type(error).__name__) from error
        return cls(address, protocol)

    @property
    def is_open(self) -> bool:
        return self._protocol.failure is None

    async def request(
        self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> Response:
        """Returns the response, whatever its code."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._protocol.request(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"no answer to request {code} within {timeout_ms} ms") from error

    async def send_oneway(
        self, code: int, *, ext: Ext | None = None, body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Sends a one-way request. Returns when it is in the connection's buffer; whether it arrives is not known."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._protocol.send_oneway(code, ext, body)
        except TimeoutError as error:
            raise _unavailable(self.address, f"request {code} not sent within {timeout_ms} ms") from error

    async def close(self) -> None:
        """Sends the buffered one-way requests first. Calls that wait for a response get PeerUnavailableError."""
        await self._protocol.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _ClientProtocol(asyncio.Protocol):
    """Connects a `protocol.connection.Connection`, which does no I/O, to a transport."""

    def __init__(self, address: str) -> None:
        self.failure: PeerUnavailableError | None = None
        """Why the connection cannot be used any more."""
        self._address = address
        self._connection = Connection(_LIMITS)
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def request(self, code: int, ext: Ext | None, body: bytes) -> Response:
        transport = await self._ready()
        opaque, sent = self._connection.request(code, ext=ext, body=body)
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._pending[opaque] = response
        transport.write(sent)
        try:
            return await response
        finally:
            self._pending.pop(opaque, None)
            self._connection.abandon_request(opaque)

    async def send_oneway(self, code: int, ext: Ext | None, body: bytes) -> None:
        (await self._ready()).write(self._connection.oneway_request(code, ext=ext, body=body))

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
        """Waits while the peer does not read what was sent earlier."""
        await self._writable.wait()
        if self.failure is not None or self._transport is None:
            raise self._new_failure()
        return self._transport

    def _new_failure(self) -> PeerUnavailableError:
        """A new exception each time: one that is raised several times would collect all their tracebacks."""
        reason = self.failure.reason if self.failure else "not connected"
        return _unavailable(self._address, reason)

    def _fail(self, reason: str) -> None:
        """Keeps the first reason; later ones follow from it."""
        if self.failure is not None:
            return
        self.failure = _unavailable(self._address, reason)
        self._writable.set()
        pending, self._pending = self._pending, {}
        for response in pending.values():
            if not response.done():
                response.set_exception(self._new_failure())

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive(data):
            match event:
                case Response():
                    response = self._pending.pop(event.opaque, None)
                    if response is not None and not response.done():
                        response.set_result(event)
                case PeerProtocolError():
                    self._fail(f"it violated the protocol: {event.message}")
                    if self._transport is not None:
                        self._transport.abort()
                case Request():
                    _log.debug("Request %d from %s ignored: a client answers no requests.", event.code, self._address)

    def eof_received(self) -> bool:
        self._fail("it closed the connection")
        return False  # asyncio closes our side too

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
