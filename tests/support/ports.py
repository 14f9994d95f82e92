"""Ports for servers that tests start."""

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

BELOW_OUTGOING: Final = range(20_000, 32_000)
"""The kernel gives outgoing connections ports above these."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports on which nothing listens. They are only likely to stay free until a server uses them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind((host, 0))
        return [bound.getsockname()[1] for bound in sockets]


def free_port(host: str = "127.0.0.1") -> int:
    (port,) = free_ports(1, host)
    return port


def lasting_free_port(neighbours: Sequence[int] = ()) -> int:
    """A port that nothing else takes while its server is stopped, and whose neighbours (-2: two below) are free
    as well.
    """
    while True:
        port = random.choice(BELOW_OUTGOING)
        if all(_is_free(port + offset) for offset in (0, *neighbours)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
