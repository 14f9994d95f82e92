"""Ports for servers that tests start."""

import socket
from contextlib import ExitStack


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different ports on which nothing listens. They are only likely to stay free until a server uses them."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind((host, 0))
        return [bound.getsockname()[1] for bound in sockets]
