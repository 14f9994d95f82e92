"""One connection to the service, as RocketMQ's own peers keep one: to the first address that answers, until it ends, is
late, or the service asks to move.

`routebook.simulate.client` does the same for a simulated fleet. It always says that it is the newest release, and one
error stands for all that can go wrong; here half of the clients are old ones, and a try that was refused, lost or late
is told from the others.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Final, cast

from routebook.protocol.command import Ext, RequestCode, Response, ResponseCode, release
from routebook.protocol.connection import Connection
from routebook.protocol.frame import PeerProtocolError

FOLLOWING: Final = release(5, 3, 3)
"""Such a peer is asked to move (1500), and does."""
NOT_FOLLOWING: Final = release(4, 9, 7)
"""Such a one is served until the worker ends; then its connection is closed."""
CONNECT_S: Final = 3.0


class CallError(Exception):
    """`how` is one of few words: `no-connection`, `refused`, `lost`, `late`, or a response code."""

    def __init__(self, how: str, detail: str = "") -> None:
        super().__init__(f"{how}: {detail}" if detail else how)
        self.how = how


class Caller:
    def __init__(self, addresses: Sequence[str], *, version: int, timeout_s: float = 3.0) -> None:
        self.moves = 0
        """How often it was asked to go away, and went."""
        self._addresses = itertools.cycle(addresses)
        self._version = version
        self._timeout_s = timeout_s
        self._link: _Link | None = None

    async def ask(self, code: int, ext: Ext, body: bytes = b"") -> Response:
        """CallError: this try has failed. A wish to go away is followed once, as the reference's clients do."""
        response = await self._ask_once(code, ext, body)
        if response.code == ResponseCode.GO_AWAY:
            self.moves += 1
            self.hang_up()
            response = await self._ask_once(code, ext, body)
        if response.code == ResponseCode.GO_AWAY:
            self.hang_up()
            raise CallError(str(int(ResponseCode.GO_AWAY)), "twice")
        return response

    async def look_up(self, topic: str) -> Response:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})

    def hang_up(self) -> None:
        if self._link:
            self._link.end()
        self._link = None

    async def _ask_once(self, code: int, ext: Ext, body: bytes) -> Response:
        link = await self._connected()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await link.ask(code, ext, body)
        except TimeoutError as error:
            self.hang_up()
            raise CallError("late", f"no answer within {self._timeout_s} s") from error

    async def _connected(self) -> "_Link":
        if self._link and not self._link.ended:
            return self._link
        host, _, port = next(self._addresses).rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, self._link = await loop.create_connection(lambda: _Link(self._version), host, int(port))
        except TimeoutError as error:
            raise CallError("no-connection", f"within {CONNECT_S} s") from error
        except ConnectionRefusedError as error:
            raise CallError("refused") from error
        except OSError as error:
            raise CallError("no-connection", str(error)) from error
        return self._link


class _Link(asyncio.Protocol):
    def __init__(self, version: int) -> None:
        self.ended = False
        self._wire = Connection(version=version)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._transport: asyncio.Transport | None = None

    async def ask(self, code: int, ext: Ext, body: bytes) -> Response:
        assert self._transport
        opaque, sent = self._wire.ask(code, ext=ext, body=body)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        self._transport.write(sent)
        try:
            return await answer
        finally:
            self._waiting.pop(opaque, None)
            self._wire.forget(opaque)

    def end(self) -> None:
        self.ended = True
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for event in self._wire.receive(data):
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

    def _fail(self, why: str) -> None:
        self.ended = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(CallError("lost", why))
