"""What the peers of one worker cost it, counted by address. The acceptors of both ports share one table (`Peers`).

A peer is an address without its port: that of the socket, or the source of an accepted PROXY header. All addresses of
one IPv6 network of 64 bits are one peer, because a single machine can use any of them. Behind a balancer that sends no
PROXY headers all peers share the balancer's address, so limits per address have generous defaults, and 0 means none.

The table is bounded. It has the peers with an open connection, of which there are at most as many as connections, and
the `IDLE_PEERS` that were here last. A peer that is forgotten starts again with full budgets.
"""

from collections import OrderedDict
from dataclasses import dataclass
from heapq import nlargest
from ipaddress import IPv6Address, ip_address
from typing import Final

from routebook.settings import Settings

IDLE_PEERS: Final = 10_000
"""Peers without a connection that are remembered, so that a budget is not full again after each connection."""
UNKNOWN: Final = "unknown"
"""Stands for the address of a peer whose PROXY header names none."""
_NETWORK_BITS: Final = 64


class Budget:
    """A token bucket. `per_second` tokens are added each second, up to `burst`. A rate of 0 means no limit.

    The balance may become negative: a cost is often known only afterwards, and one request may cost more than `burst`.
    Then everything is refused until the debt is paid.
    """

    __slots__ = ("_at", "_balance", "burst", "per_second")

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self.burst = burst
        self._balance = burst
        self._at = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Takes `amount` if that is left, or if the bucket is full. `now` is `time.monotonic()`."""
        if not self.per_second:
            return True
        if self._refill(now) < min(amount, self.burst):
            return False
        self._balance -= amount
        return True

    def charge(self, amount: float, now: float) -> None:
        """Takes `amount` in any case: it has been spent already."""
        if self.per_second:
            self._refill(now)
            self._balance -= amount

    def has_any(self, now: float) -> bool:
        return not self.per_second or self._refill(now) > 0

    def wait_s(self, now: float, amount: float = 0.0) -> float:
        """Seconds until `take(amount)` succeeds; 0 if it does."""
        if not self.per_second:
            return 0.0
        return max(0.0, (min(amount, self.burst) - self._refill(now)) / self.per_second)

    def _refill(self, now: float) -> float:
        if now > self._at:
            self._balance = min(self.burst, self._balance + (now - self._at) * self.per_second)
            self._at = now
        return self._balance


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Limits of one address; 0 means no limit. The defaults are those of the settings."""

    connections: int = 0
    watches: int = 0
    requests_per_second: int = 0
    lookups_per_second: int = 0
    decoding_percent: int = 0
    """Share of one core that may be spent on decoding bodies."""
    failed_sign_ins_per_minute: int = 0

    @classmethod
    def of(cls, settings: Settings) -> "PeerLimits":
        return cls(
            connections=settings.max_connections_per_address,
            watches=settings.max_watches_per_address,
            requests_per_second=settings.max_requests_per_second_per_address,
            lookups_per_second=settings.max_lookups_per_second_per_address,
            decoding_percent=settings.max_decoding_percent_per_address,
            failed_sign_ins_per_minute=settings.max_failed_sign_ins_per_minute_per_address,
        )


REQUEST_BURST_S: Final = 2.0
"""Seconds of its rate of requests that a peer may use at once."""
DECODING_BURST_S: Final = 10.0
"""Seconds of its share of decoding that a peer may use at once: brokers behind one address register together."""


class Peer:
    """The costs of one address."""

    __slots__ = ("connections", "decoding", "host", "lookups", "requests", "sign_ins", "watches")

    def __init__(self, host: str, limits: PeerLimits) -> None:
        self.host = host
        self.connections = 0
        """Open connections on both ports. Changed by `Peers` only."""
        self.watches = 0
        """Open watches. Changed by `Watchers` only."""
        per_second = limits.requests_per_second
        self.requests = Budget(per_second, per_second * REQUEST_BURST_S)
        """Requests other than lookups."""
        self.lookups = Budget(limits.lookups_per_second, limits.lookups_per_second * REQUEST_BURST_S)
        """Lookups over the remoting port."""
        share = limits.decoding_percent / 100
        self.decoding = Budget(share, share * DECODING_BURST_S)
        """Seconds of CPU for decoding bodies."""
        failures = limits.failed_sign_ins_per_minute
        self.sign_ins = Budget(failures / 60, failures)
        """Failed sign-ins."""


class Peers:
    def __init__(self, limits: PeerLimits = PeerLimits(), *, idle_peers: int = IDLE_PEERS) -> None:
        self.limits = limits
        self._idle_peers = idle_peers
        self._connected: dict[str, Peer] = {}
        self._idle: OrderedDict[str, Peer] = OrderedDict()
        """The peer that was used last is at the end."""

    def __len__(self) -> int:
        return len(self._connected) + len(self._idle)

    def get(self, address: str) -> Peer:
        """`address` is a host without its port."""
        host = _peer_name(address)
        peer = self._connected.get(host)
        if peer is not None:
            return peer
        peer = self._idle.get(host)
        if peer is not None:
            self._idle.move_to_end(host)
            return peer
        peer = self._idle[host] = Peer(host, self.limits)
        self._drop_oldest()
        return peer

    def connect(self, peer: Peer) -> bool:
        """Counts a connection. False if the address has reached its limit; then nothing is counted."""
        if self.limits.connections and peer.connections >= self.limits.connections:
            return False
        if not peer.connections:
            self._idle.pop(peer.host, None)
            self._connected[peer.host] = peer
        peer.connections += 1
        return True

    def disconnect(self, peer: Peer) -> None:
        peer.connections -= 1
        if not peer.connections:
            del self._connected[peer.host]
            self._idle[peer.host] = peer
            self._drop_oldest()

    def busiest(self, number: int) -> list[Peer]:
        """The peers with the most connections."""
        return nlargest(number, self._connected.values(), key=lambda peer: peer.connections)

    def _drop_oldest(self) -> None:
        while len(self._idle) > self._idle_peers:
            self._idle.popitem(last=False)


def _peer_name(address: str) -> str:
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address) or parsed.is_loopback:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    network = int(parsed) >> _NETWORK_BITS << _NETWORK_BITS
    return f"{IPv6Address(network)}/{_NETWORK_BITS}"
