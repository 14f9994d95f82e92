"""Broker addresses that a name server can dial: one that accepts, one that refuses, one that does not answer."""

import socket
from contextlib import ExitStack
from typing import Self


class BrokerHosts:
    """Hands out addresses in 127.0.0.0/8, each with a real port."""

    def __init__(self) -> None:
        self._sockets = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.close()

    def accepting(self) -> str:
        """An address at which a broker listens."""
        return self._address(self._listener(backlog=16))

    def refusing(self) -> str:
        """The address of a process that died: its host refuses connections."""
        listener = self._listener(backlog=1)
        address = self._address(listener)
        listener.close()
        return address

    def silent(self) -> str:
        """An address that does not answer: its queue of connections is full, so the kernel drops further attempts."""
        listener = self._listener(backlog=0)
        for _ in range(4):
            filler = self._sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        return self._address(listener)

    def _listener(self, backlog: int) -> socket.socket:
        self._count += 1
        listener = self._sockets.enter_context(socket.socket())
        listener.bind((f"127.0.3.{self._count % 250 + 1}", 0))
        listener.listen(backlog)
        return listener

    def _address(self, listener: socket.socket) -> str:
        host, port = listener.getsockname()
        return f"{host}:{port}"
