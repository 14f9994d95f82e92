"""Connections to one name server. Answers come in any order and are told apart by `opaque`."""

import itertools
import secrets
import socket
from typing import Protocol

from tests.conformance.differential.frames import Answer, Request, cut_frame
from tests.support.waiting import wait_until

PATIENCE_S = 15.0
_opaques = itertools.count(1)


class Side(Protocol):
    """A name server: real, or told by plain rules."""

    name: str

    def send(self, line: str, request: Request) -> int: ...

    def receive(self, line: str, opaque: int) -> Answer: ...

    def drop(self, line: str) -> None: ...

    def settle(self) -> None:
        """After a write: until it shows on all connections."""

    def hang_up(self) -> None: ...

    def unasked(self) -> list[Answer]:
        """Answers that nobody waits for, such as one to a oneway request."""


def ask(side: Side, request: Request, *, line: str = "aside") -> Answer:
    return side.receive(line, side.send(line, request))


class Line:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
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
                found = self._socket.recv(1 << 16)
                if not found:
                    raise ConnectionError("closed by the name server")
                self._buffer += found
            else:
                self._answers[answer.opaque] = answer
        return self._answers.pop(opaque)

    def unasked(self) -> list[Answer]:
        """Answers that nobody waits for, such as one to a oneway request."""
        return list(self._answers.values())

    def close(self) -> None:
        self._socket.close()


class RealSide:
    """A name server at an address, with one connection a name."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self._place = (host, port)
        self._lines: dict[str, Line] = {}

    def send(self, line: str, request: Request) -> int:
        if line not in self._lines:
            self._open(line)
        return self._lines[line].send(request)

    def _open(self, line: str) -> None:
        self._lines[line] = Line(*self._place)

    def receive(self, line: str, opaque: int) -> Answer:
        try:
            return self._lines[line].receive(opaque)
        except OSError as error:
            raise ConnectionError(f"{self.name}, {line}: {error}") from error

    def drop(self, line: str) -> None:
        if found := self._lines.pop(line, None):
            found.close()

    def settle(self) -> None:
        return None

    def unasked(self) -> list[Answer]:
        return [answer for line in self._lines.values() for answer in line.unasked()]

    def hang_up(self) -> None:
        for line in list(self._lines):
            self.drop(line)


class SeveralWorkers(RealSide):
    """Each connection is some worker's. They learn of a write one by one, in the order of writes: who shows the last
    one shows all.
    """

    def __init__(self, name: str, host: str, port: int) -> None:
        super().__init__(name, host, port)
        self._writes = 0
        self._key = {"namespace": f"settled {secrets.token_hex(4)}", "key": "last"}

    def settle(self) -> None:
        assert ask(self, Request(100, self._key | {"value": str(self._writes + 1)})).code == 0
        self._writes += 1
        for line in list(self._lines):
            self._wait_for_last(line)

    def _open(self, line: str) -> None:
        super()._open(line)
        if self._writes:
            self._wait_for_last(line)

    def _wait_for_last(self, line: str) -> None:
        wait_until(lambda: self._shows_last(line), f"{line} shows write {self._writes}")

    def _shows_last(self, line: str) -> bool:
        return ask(self, Request(101, self._key), line=line).ext == {"value": str(self._writes)}
