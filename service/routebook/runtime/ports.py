"""Binds the ports before anything else starts, so that a port in use is reported at once; and raises the limit of open
files, as the JVM does, because a process may open far more files than it is allowed to at the start.
"""

import contextlib
import errno
import logging
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

from routebook.errors import SettingsError
from routebook.settings import catalogue

BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class PublicPorts:
    """The listening sockets that all workers of a service share."""

    remoting: socket.socket
    http: socket.socket


def listen(host: str, port: int, port_setting: str, host_setting: str) -> socket.socket:
    """A non-blocking listening socket. Connections wait in its backlog until the start is complete."""
    listener = _bound(host, port, port_setting, host_setting)
    listener.setblocking(False)
    return listener


def listen_privately(path: Path) -> socket.socket:
    """A unix socket in a private folder."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener.bind(str(path))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def http_address(listener: socket.socket, *, is_secure: bool = False) -> str:
    return f"http{'s' if is_secure else ''}://{address_of(listener)}"


def _bound(host: str, port: int, port_setting: str, host_setting: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _no_such_host(host, host_setting, str(error)) from error
    listener = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for the connections of the previous run.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two processes that start at the same time may both bind; only one may listen.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise _taken(port, port_setting) from error
        if error.errno == errno.EACCES:
            raise _not_allowed(port, port_setting) from error
        raise _no_such_host(host, host_setting, error.strerror or str(error)) from error
    return listener


def _taken(port: int, setting: str) -> SettingsError:
    one = catalogue.find(setting)
    return SettingsError(
        f"Port {port} ({setting}) is taken by another process.",
        advice=f"Stop that process, or choose another with {one.flag} or {one.variable} (0: a free one).",
    )


def _not_allowed(port: int, setting: str) -> SettingsError:
    one = catalogue.find(setting)
    return SettingsError(
        f"Port {port} ({setting}) may not be used by this user.",
        advice=f"Choose a port above 1023 with {one.flag} or {one.variable}.",
    )


def _no_such_host(host: str, setting: str, reason: str) -> SettingsError:
    one = catalogue.find(setting)
    return SettingsError(
        f"{setting} is {host!r}, which is not an address of this machine: {reason}.",
        advice=f"Set {one.flag} or {one.variable} to an address of this machine.",
    )


_log = logging.getLogger(__name__)

OTHER_FILES = 256
"""The store's connections, listeners, watched files, children's pipes."""


PORTS = 2


def allow_connections(count: int) -> None:
    """Raises the soft limit of open files to what `count` connections for each port need, if the system allows it."""
    wanted = PORTS * count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # macOS refuses values below its reported hard limit; the soft limit then remains as it was.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < wanted:
        _log.warning(
            "A worker may open %d files (ulimit -n), and max_connections is %d on each of %d ports; "
            "beyond about %d in total, new connections are closed.",
            allowed,
            count,
            PORTS,
            max(0, allowed - OTHER_FILES),
        )
