"""Dialling a broker's own address once, after its last connection was lost.

Any peer can register any address, so these rules prevent the use of dials as a port scanner:

- Only addresses in the networks of `dial_networks` are dialled. When that setting is empty, the address has to be in
  the network that the broker's connection came from: the same /24 (IPv6: /64), or loopback like the connection.
- An instance that is not established yet is dialled only at the address that its connection came from, so that no
  dial reveals anything about other hosts.

For an address that may not be dialled, the outcome does not depend on what listens there (`lost_connections`).
"""

import asyncio
import errno
import socket
import time
from collections.abc import Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from routebook.settings.kinds import Network
from routebook.store.sessions import LostConnection

MAX_DIALS: Final = 128
"""Dials at the same time."""
DIALS_PER_S: Final = 500
"""A worker that vanishes may leave thousands of brokers to dial."""
MIN_DIAL_S: Final = 1.0
"""Time for one repeated SYN, when the grace is nearly over after waiting for other dials."""
NEAR_PREFIX: Final = {4: 24, 6: 64}

LOCAL_ERRORS: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.EADDRNOTAVAIL,
        errno.EACCES,
        errno.EPERM,
        errno.EAFNOSUPPORT,
    }
)
"""Errors of this process or host, which say nothing about the broker."""

Address = IPv4Address | IPv6Address


class DialResult(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    """No answer in time, or no route to the host."""
    UNDECIDED = "undecided"
    """A local error prevented the dial."""
    NOT_ALLOWED = "not allowed"
    """The address is outside the networks that may be dialled."""


class Dialler:
    def __init__(self, networks: Sequence[Network]) -> None:
        """`networks`: those that may be dialled; none: the network that the connection came from."""
        self._networks = tuple(networks)
        self._slots = asyncio.Semaphore(MAX_DIALS)
        self._next_start = 0.0

    async def dial(self, loss: LostConnection, until: float) -> DialResult:
        """Connects and sends nothing. If a name has several addresses, one that accepts is enough. `until`: the end of
        the grace, on the monotonic clock.
        """
        host, _, port = loss.address.rpartition(":")
        host = host.strip("[]")
        if not loss.established and parse_address(host) is None:
            return DialResult.NOT_ALLOWED  # not even the name is resolved
        async with self._slots:
            await self._wait_for_turn()
            try:
                async with asyncio.timeout(max(until - time.monotonic(), MIN_DIAL_S)):
                    return await self._dial_all(host, int(port), loss)
            except TimeoutError:
                return DialResult.SILENT

    async def _wait_for_turn(self) -> None:
        now = time.monotonic()
        self._next_start = max(self._next_start + 1 / DIALS_PER_S, now)
        await asyncio.sleep(self._next_start - now)

    async def _dial_all(self, host: str, port: int, loss: LostConnection) -> DialResult:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            return DialResult.SILENT if error.errno == socket.EAI_NONAME else DialResult.UNDECIDED
        except (OSError, UnicodeError):
            return DialResult.UNDECIDED
        results = set[DialResult]()
        for family, kind, protocol, _, address in found:
            target = parse_address(str(address[0]))
            if target is None or not self._may_dial(target, loss):
                results.add(DialResult.NOT_ALLOWED)
                continue
            result = await _dial_one(family, kind, protocol, address)
            if result is DialResult.ACCEPTED:
                return result
            results.add(result)
        if results == {DialResult.REFUSED}:
            return DialResult.REFUSED
        if DialResult.NOT_ALLOWED in results:
            return DialResult.NOT_ALLOWED
        return DialResult.SILENT if DialResult.UNDECIDED not in results else DialResult.UNDECIDED

    def _may_dial(self, target: Address, loss: LostConnection) -> bool:
        source = parse_address(loss.source.rpartition(":")[0])
        is_own_host = target == source and not target.is_loopback
        if not (is_own_host or loss.established):
            return False
        if self._networks:
            return any(target in network for network in self._networks)
        return source is not None and are_near(target, source)


def parse_address(host: str) -> Address | None:
    """None for a name. An IPv4 address in IPv6 form counts as IPv4."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def are_near(target: Address, source: Address) -> bool:
    if target.is_loopback or source.is_loopback:
        return target.is_loopback and source.is_loopback
    network = ip_network(f"{source}/{NEAR_PREFIX[source.version]}", strict=False)
    return target.version == source.version and target in network


async def _dial_one(family: int, kind: int, protocol: int, address: Any) -> DialResult:
    try:
        with socket.socket(family, kind, protocol) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, address)
    except ConnectionRefusedError:
        return DialResult.REFUSED
    except OSError as error:
        return DialResult.UNDECIDED if error.errno in LOCAL_ERRORS else DialResult.SILENT
    return DialResult.ACCEPTED
