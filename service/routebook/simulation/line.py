"""One address of a name server as RocketMQ's own clients treat it: one connection, made when it is needed, kept, closed
when an answer is late; and "go away" is followed once.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from routebook.client.remoting_client import RemotingClient
from routebook.errors import PeerUnavailableError
from routebook.wire.codes import ResponseCode
from routebook.wire.command import Ext, Response

CONNECT_MS: Final = 3000


class LateAnswerError(PeerUnavailableError):
    """There is a connection, and no answer in time."""


class Line:
    def __init__(
        self, address: str, *, follows_go_away: bool = True, on_go_away: Callable[[], None] | None = None
    ) -> None:
        self.address = address
        self._follows_go_away = follows_go_away
        self._on_go_away = on_go_away
        self._client: RemotingClient | None = None
        self._connecting = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._client is not None and self._client.is_open

    @property
    def was_lost(self) -> bool:
        """It was open, and nobody here closed it."""
        return self._client is not None and not self._client.is_open

    async def connect(self) -> RemotingClient:
        async with self._connecting:
            if self._client is not None and self._client.is_open:
                return self._client
            await self._drop()
            self._client = await RemotingClient.connect(self.address, timeout_ms=CONNECT_MS)
            return self._client

    async def ask(self, code: int, ext: Ext, body: bytes = b"", *, timeout_ms: int) -> Response:
        """PeerUnavailableError: no connection, or one that was lost; LateAnswerError: nothing in time."""
        response = await self._ask_once(code, ext, body, timeout_ms)
        if response.code != ResponseCode.GO_AWAY:
            return response
        if self._on_go_away:
            self._on_go_away()
        if not self._follows_go_away:
            return response
        await self._drop()
        return await self._ask_once(code, ext, body, timeout_ms)

    async def close(self) -> None:
        async with self._connecting:
            await self._drop()

    async def _ask_once(self, code: int, ext: Ext, body: bytes, timeout_ms: int) -> Response:
        client = await self.connect()
        try:
            return await client.ask(code, ext=ext, body=body, timeout_ms=timeout_ms)
        except PeerUnavailableError as error:
            if not client.is_open:
                raise
            # As `clientCloseSocketIfTimeout` has it.
            await client.close()
            raise LateAnswerError(error.address, error.reason) from error

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
