"""Where brokers of a test listen, or do not: what a name server finds when it dials them."""

import socket
from contextlib import ExitStack
from typing import Self


class BrokerHosts:
    """Addresses in 127.0.0.0/8, each with a real port."""

    def __init__(self) -> None:
        self._sockets = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.close()

    def accepting(self) -> str:
        """Somebody listens."""
        return self._address(self._listener(backlog=16))

    def refusing(self) -> str:
        """A process that died: its host says that nobody listens there."""
        listener = self._listener(backlog=1)
        address = self._address(listener)
        listener.close()
        return address

    def silent(self) -> str:
        """Nobody answers: the kernel drops what does not fit into a full queue of connections."""
        listener = self._listener(backlog=0)
        where = listener.getsockname()
        for _ in range(4):
            one = self._sockets.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(where)
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
