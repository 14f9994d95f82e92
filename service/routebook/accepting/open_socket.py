"""A connection's socket that says when it is given up, by whomever.

Transports own the socket they are given and tell only their protocol of its end. Counting there would ask every
protocol to remember it; a slot that is never returned would in the end close the port.
"""

import socket
from collections.abc import Callable
from typing import Self


class OpenSocket(socket.socket):
    _on_end: Callable[[], None] | None = None

    @classmethod
    def taking(cls, accepted: socket.socket, on_end: Callable[[], None]) -> Self:
        """`accepted` is empty afterwards. Family and kind are named so that the kernel is not asked again."""
        taken = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        taken._on_end = on_end
        taken.setblocking(False)
        return taken

    def detach(self) -> int:
        """How uvloop's transports let go; asyncio's own close."""
        self._ended()
        return super().detach()

    def close(self) -> None:
        self._ended()
        super().close()

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
