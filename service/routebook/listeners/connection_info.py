"""Where a connection comes from, and the limits of a port."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from math import inf
from typing import Any

from routebook.protocol.opening import Endpoint, ProxyHeader

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """What a port's protocol is made with."""

    peer: str
    """`host:port`, IPv6 in brackets: the source of an accepted PROXY header, otherwise the address of the socket."""
    is_tls: bool
    source: Endpoint | None = None
    """The same in parts. None if a PROXY header named no source, so that the real peer is unknown."""
    balancer: Endpoint | None = None
    """The address that sent an accepted PROXY header. None if there was no header."""
    first_byte_at: float = inf
    """`time.monotonic()` of the first byte, where the deadline of an unfinished first frame begins. With TLS the
    handshake has a deadline of its own, and this is infinity: no frame has begun.
    """

    @property
    def permission_address(self) -> Endpoint | None:
        """Address used for permission checks. None if it is unknown, so that no address gives a permission.

        It is never the balancer's address, which may well be a loopback address. A header from another machine cannot
        name a loopback address either.
        """
        if self.balancer is None or self.source is None:
            return self.source
        if is_loopback(self.source.host) and not is_loopback(self.balancer.host):
            return None
        return self.source


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one port; defaults as in `settings`."""

    max_connections: int = 20_000
    silent_seconds: float = 120.0
    """For a connection that has not sent anything; 0 means no limit. Java clients keep such connections to the name
    servers that they do not use, and reconnect as soon as one is closed, so it is as long as for idle connections.
    """
    first_bytes_seconds: float = 10.0
    """For a PROXY header, a TLS handshake or the first bytes of a frame, once they have begun."""
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0


def connection_info(
    real: Endpoint, proxy: ProxyHeader | None, *, is_tls: bool, first_byte_at: float = inf
) -> ConnectionInfo:
    """`real` is the address of the socket."""
    if is_tls:
        first_byte_at = inf
    if proxy is None:
        return ConnectionInfo(_text(real), is_tls, real, first_byte_at=first_byte_at)
    return ConnectionInfo(_text(proxy.source or real), is_tls, proxy.source, real, first_byte_at)


def endpoint_of(address: Any) -> Endpoint:
    """Converts the address of a socket. An IPv4 peer of an IPv6 socket gets its IPv4 address."""
    host, port = address[:2]
    plain = _ip(host)
    return Endpoint(str(plain) if plain.version == 4 else host, port)


def is_loopback(host: str) -> bool:
    return _ip(host).is_loopback


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = _ip(host)
    return any(address in network for network in networks)


def _ip(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _text(endpoint: Endpoint) -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
