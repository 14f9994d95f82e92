"""Ports for servers that tests start."""

import os
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

BELOW_OUTGOING: Final = range(20_000, 32_000)
"""The kernel gives outgoing connections ports above these."""
PROCESSES: Final = 4
"""The most that a parallel run has; see the Makefile."""


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


_given_out: Final[set[int]] = set()
"""A server takes seconds to start, or may be stopped for a while. Until then its ports look free."""


def lasting_free_port(neighbours: Sequence[int] = ()) -> int:
    """A port that nothing else takes while its server is stopped, and whose neighbours (-2: two below) are free
    as well. Each process of a parallel run has a range of its own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    share = len(BELOW_OUTGOING) // PROCESSES
    first = int(worker) % PROCESSES * share
    while True:
        port = random.choice(BELOW_OUTGOING[first : first + share])
        ports = {port + offset for offset in (0, *neighbours)}
        if ports.isdisjoint(_given_out) and all(map(_is_free, ports)):
            _given_out.update(ports)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
