"""Who a connection is from, and what an acceptor is told."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from math import inf
from typing import Any

from routebook.protocol.opening import Endpoint, ProxyHeader

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a port's protocol is made with."""

    peer: str
    """`host:port`, IPv6 in brackets: the source that a believed PROXY header names, else who really connects."""
    is_tls: bool
    source: Endpoint | None = None
    """The same in parts. None where a PROXY header named nobody: whom such a connection serves is not known."""
    balancer: Endpoint | None = None
    """Who sent the PROXY header that was believed. None: there was none."""
    began: float = inf
    """`time.monotonic()` of the first byte, so that the deadline of an unfinished first frame counts from there. With
    TLS the handshake is one thing and what follows another: infinity, nothing has begun.
    """

    @property
    def judged_as(self) -> Endpoint | None:
        """Whom permissions go by; None: nobody who is known, so no address may help it.

        Never the balancer, which may well sit on loopback. And loopback is where the balancer is, or nowhere: what
        comes from another machine does not become local by saying so.
        """
        if self.balancer is None or self.source is None:
            return self.source
        if is_loopback(self.source.host) and not is_loopback(self.balancer.host):
            return None
        return self.source


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers of one port; defaults as in `settings`."""

    max_connections: int = 20_000
    silent_seconds: float = 120.0
    """A connection that has said nothing yet. Java clients hold such ones to the name servers they do not ask, and
    open another as soon as it is closed; so as long as any idle one. 0: no limit."""
    first_bytes_seconds: float = 10.0
    """For whom has begun, with a PROXY header or a handshake, too."""
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0


def endpoint_of(address: Any) -> Endpoint:
    """Of a socket's address; an IPv4 peer of an IPv6 socket under the name everybody else knows it by."""
    host, port = address[:2]
    plain = _ip(host)
    return Endpoint(str(plain) if plain.version == 4 else host, port)


def is_loopback(host: str) -> bool:
    return _ip(host).is_loopback


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = _ip(host)
    return any(address in network for network in networks)


def arrival_of(real: Endpoint, proxy: ProxyHeader | None, *, is_tls: bool, began: float = inf) -> Arrival:
    began = inf if is_tls else began
    if proxy is None:
        return Arrival(_text(real), is_tls, real, began=began)
    return Arrival(_text(proxy.source or real), is_tls, proxy.source, real, began)


def _ip(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _text(endpoint: Endpoint) -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
