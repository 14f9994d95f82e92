"""One connection to the service, as RocketMQ's peers keep one. It moves to the next address of a list when the
connection ends, an answer is late, or the service asks it to move.

`routebook.simulate.client` does the same for a simulated fleet, but always claims to be the newest release and has a
single error. Here half of the clients claim an old release, and refused, lost and late tries are distinguished.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Final, cast

from routebook.protocol.connection import Connection
from routebook.protocol.frame import Ext, PeerProtocolError, RequestCode, Response, ResponseCode, release

GO_AWAY_VERSION: Final = release(5, 3, 3)
"""A release that understands GO_AWAY (code 1500)."""
LEGACY_VERSION: Final = release(4, 9, 7)
"""A release that does not; a draining worker serves it until the end and then closes its connection."""
CONNECT_S: Final = 3.0


class CallError(Exception):
    """`reason` is `no-connection`, `refused`, `lost`, `late`, or a response code."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Caller:
    def __init__(self, addresses: Sequence[str], *, version: int, timeout_s: float = 3.0) -> None:
        self.moves = 0
        """How many times it followed GO_AWAY."""
        self._addresses = itertools.cycle(addresses)
        self._version = version
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None

    async def ask(self, code: int, ext: Ext, body: bytes = b"") -> Response:
        """Raises CallError if the try fails. Follows one GO_AWAY, as RocketMQ's clients do."""
        response = await self._ask_once(code, ext, body)
        if response.code == ResponseCode.GO_AWAY:
            self.moves += 1
            self.close()
            response = await self._ask_once(code, ext, body)
        if response.code == ResponseCode.GO_AWAY:
            self.close()
            raise CallError(str(int(ResponseCode.GO_AWAY)), "twice")
        return response

    async def look_up(self, topic: str) -> Response:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})

    def close(self) -> None:
        if self._connection:
            self._connection.end()
        self._connection = None

    async def _ask_once(self, code: int, ext: Ext, body: bytes) -> Response:
        connection = await self._connected()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.ask(code, ext, body)
        except TimeoutError as error:
            self.close()
            raise CallError("late", f"no answer within {self._timeout_s} s") from error

    async def _connected(self) -> "_Connection":
        if self._connection and not self._connection.ended:
            return self._connection
        host, _, port = next(self._addresses).rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, self._connection = await loop.create_connection(lambda: _Connection(self._version), host, int(port))
        except TimeoutError as error:
            raise CallError("no-connection", f"within {CONNECT_S} s") from error
        except ConnectionRefusedError as error:
            raise CallError("refused") from error
        except OSError as error:
            raise CallError("no-connection", str(error)) from error
        return self._connection


class _Connection(asyncio.Protocol):
    def __init__(self, version: int) -> None:
        self.ended = False
        self._protocol = Connection(version=version)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._transport: asyncio.Transport | None = None

    async def ask(self, code: int, ext: Ext, body: bytes) -> Response:
        assert self._transport
        opaque, frame = self._protocol.request(code, ext=ext, body=body)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        self._transport.write(frame)
        try:
            return await answer
        finally:
            self._waiting.pop(opaque, None)
            self._protocol.abandon_request(opaque)

    def end(self) -> None:
        self.ended = True
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for event in self._protocol.receive(data):
            if isinstance(event, Response) and (answer := self._waiting.get(event.opaque)):
                with contextlib.suppress(asyncio.InvalidStateError):
                    answer.set_result(event)
            elif isinstance(event, PeerProtocolError):
                self.end()

    def eof_received(self) -> bool:
        self._fail("closed by the service")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "closed")

    def _fail(self, detail: str) -> None:
        self.ended = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(CallError("lost", detail))
