"""Connections to a name server. Answers arrive in any order and are matched by `opaque`."""

import itertools
import secrets
import socket
from typing import Protocol

from tests.conformance.differential.frames import Answer, Request, cut_frame
from tests.support.waiting import wait_until

TIMEOUT_S = 15.0
_opaques = itertools.count(1)


class Side(Protocol):
    """A name server: a real one or the reference model."""

    name: str

    def send(self, connection: str, request: Request) -> int: ...

    def receive(self, connection: str, opaque: int) -> Answer: ...

    def drop(self, connection: str) -> None: ...

    def wait_for_last_write(self) -> None:
        """Waits until the last write is visible on all connections."""

    def disconnect(self) -> None: ...

    def unexpected_answers(self) -> list[Answer]:
        """Answers that were not asked for, such as one to a one-way request."""


def ask(side: Side, request: Request, *, connection: str = "aside") -> Answer:
    return side.receive(connection, side.send(connection, request))


class Connection:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._answers: dict[int, Answer] = {}

    def send(self, request: Request) -> int:
        opaque = next(_opaques)
        self._socket.sendall(request.to_bytes(opaque))
        return opaque

    def receive(self, opaque: int) -> Answer:
        while opaque not in self._answers:
            answer = cut_frame(self._buffer)
            if answer is None:
                received = self._socket.recv(1 << 16)
                if not received:
                    raise ConnectionError("closed by the name server")
                self._buffer += received
            else:
                self._answers[answer.opaque] = answer
        return self._answers.pop(opaque)

    def unexpected_answers(self) -> list[Answer]:
        """Answers that were not asked for, such as one to a one-way request."""
        return list(self._answers.values())

    def close(self) -> None:
        self._socket.close()


class RealSide:
    """A name server at an address, with one connection for each connection name."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self._address = (host, port)
        self._connections: dict[str, Connection] = {}

    def send(self, connection: str, request: Request) -> int:
        if connection not in self._connections:
            self._open(connection)
        return self._connections[connection].send(request)

    def _open(self, connection: str) -> None:
        self._connections[connection] = Connection(*self._address)

    def receive(self, connection: str, opaque: int) -> Answer:
        try:
            return self._connections[connection].receive(opaque)
        except OSError as error:
            raise ConnectionError(f"{self.name}, {connection}: {error}") from error

    def drop(self, connection: str) -> None:
        if open_connection := self._connections.pop(connection, None):
            open_connection.close()

    def wait_for_last_write(self) -> None:
        return None

    def unexpected_answers(self) -> list[Answer]:
        return [answer for connection in self._connections.values() for answer in connection.unexpected_answers()]

    def disconnect(self) -> None:
        for connection in list(self._connections):
            self.drop(connection)


class SeveralWorkers(RealSide):
    """A name server with several workers, of which each connection has one. All workers see writes in the same order,
    so a worker that shows the last write shows all of them.
    """

    def __init__(self, name: str, host: str, port: int) -> None:
        super().__init__(name, host, port)
        self._writes = 0
        self._key = {"namespace": f"last-write {secrets.token_hex(4)}", "key": "last"}

    def wait_for_last_write(self) -> None:
        assert ask(self, Request(100, self._key | {"value": str(self._writes + 1)})).code == 0
        self._writes += 1
        for connection in list(self._connections):
            self._wait_for_last(connection)

    def _open(self, connection: str) -> None:
        super()._open(connection)
        if self._writes:
            self._wait_for_last(connection)

    def _wait_for_last(self, connection: str) -> None:
        wait_until(lambda: self._shows_last(connection), f"{connection} shows write {self._writes}")

    def _shows_last(self, connection: str) -> bool:
        return ask(self, Request(101, self._key), connection=connection).ext == {"value": str(self._writes)}
