"""Who a connection is from, and what an acceptor is told."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

from routebook.wire.proxy_header import Endpoint, ProxyHeader

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a port's protocol is made with."""

    peer: str
    """`host:port`, IPv6 in brackets: the source that a believed PROXY header names, else who really connects."""
    is_tls: bool
    source: Endpoint | None = None
    """The same in parts. None where a PROXY header named nobody: whom such a connection serves is not known, so it
    must not be taken for its balancer when it comes to permissions."""


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
    plain = ip_address(host.partition("%")[0])
    mapped = plain.ipv4_mapped if plain.version == 6 else None
    return Endpoint(str(mapped) if mapped else host, port)


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = ip_address(host.partition("%")[0])
    return any(address in network for network in networks)


def arrival_of(real: Endpoint, proxy: ProxyHeader | None, *, is_tls: bool) -> Arrival:
    if proxy is None:
        return Arrival(_text(real), is_tls, real)
    return Arrival(_text(proxy.source or real), is_tls, proxy.source)


def _text(endpoint: Endpoint) -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
