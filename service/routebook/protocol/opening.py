"""The first bytes of a connection: perhaps a PROXY header, then TLS, frames or HTTP requests.

A PROXY header or a TLS handshake cannot be mistaken for a frame, because as the length of a frame it would be far above
any limit. No HTTP method begins like either of them.

In a PROXY header, a load balancer names the peer for which it connects, as a line of text (v1) or in binary form (v2).
Both forms limit their own length. They are parsed strictly, because the sender is a balancer of ours, and a mistake in
its configuration must become visible. Numbers and names are those of HAProxy's proxy-protocol.txt.
"""

from enum import Enum
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct, unpack_from
from typing import NamedTuple

from routebook.protocol.frame import LENGTH_BYTES, FrameLimits, PeerProtocolError, Violation

V1_SIGNATURE = b"PROXY"
V1_MAX_BYTES = 107
"""With two IPv6 addresses at their longest, and the line feed."""
V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V2_FIXED_BYTES = 16
V2_VERSION = 2
V2_LOCAL, V2_PROXY = 0, 1
V2_WORD = Struct(">BBH")
TLV_HEAD = Struct(">BH")
LARGEST_PORT = 65535


class _Family(Enum):
    """Number of family and transport in v2, bytes of the two addresses and, for those that we read, their format."""

    UNSPECIFIED = (0x00, 0, "")
    TCP4 = (0x11, 12, ">4s4sHH")
    UDP4 = (0x12, 12, "")
    TCP6 = (0x21, 36, ">16s16sHH")
    UDP6 = (0x22, 36, "")
    UNIX_STREAM = (0x31, 216, "")
    UNIX_DATAGRAM = (0x32, 216, "")

    def __init__(self, number: int, address_bytes: int, form: str) -> None:
        self.number = number
        self.address_bytes = address_bytes
        self.form = form


FAMILIES = {family.number: family for family in _Family}


class Endpoint(NamedTuple):
    host: str
    port: int


class ProxyHeader(NamedTuple):
    """Without addresses if the balancer connects for itself (a health check), or for a peer without an IP address."""

    source: Endpoint | None = None
    destination: Endpoint | None = None


class ParsedProxyHeader(NamedTuple):
    header: ProxyHeader
    length: int
    """In bytes."""


def may_begin_proxy_header(data: bytes | bytearray) -> bool:
    """Whether these bytes are the beginning of a PROXY header, as far as they go."""
    return any(signature[: len(data)] == data[: len(signature)] for signature in (V1_SIGNATURE, V2_SIGNATURE))


def parse_proxy_header(data: bytes | bytearray) -> ParsedProxyHeader | None:
    """The header at the beginning of `data`; None when more bytes are needed."""
    if not may_begin_proxy_header(data):
        raise _wrong("it has neither signature")
    return _parse_v1(data) if data.startswith(V1_SIGNATURE) else _parse_v2(data)


def _wrong(what: str) -> PeerProtocolError:
    return PeerProtocolError(
        Violation.PROXY_HEADER, f"A PROXY header cannot be read: {what}.", advice="Look at the balancer's settings."
    )


def _parse_v1(data: bytes | bytearray) -> ParsedProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_MAX_BYTES)
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise _wrong(f"its line has no end within {V1_MAX_BYTES} bytes")
        return None
    line = bytes(data[:end])
    if not line.isascii():
        raise _wrong("its line is not ASCII")
    return ParsedProxyHeader(_read_v1(line.decode("ascii")), end + 2)


def _read_v1(line: str) -> ProxyHeader:
    words = line.split(" ")
    if words[:2] == ["PROXY", "UNKNOWN"]:
        # The specification says to ignore the rest of the line.
        return ProxyHeader()
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise _wrong("a v1 line is PROXY TCP4|TCP6 with two addresses and two ports, or PROXY UNKNOWN")
    _, family, source, destination, source_port, destination_port = words
    return ProxyHeader(
        Endpoint(_address(family, source), _port(source_port)),
        Endpoint(_address(family, destination), _port(destination_port)),
    )


def _address(family: str, text: str) -> str:
    try:
        if family == "TCP4":
            return str(IPv4Address(text))
        if "%" not in text:
            return str(IPv6Address(text))
    except AddressValueError:
        pass
    raise _wrong(f"{text!r} is no address of {family}")


def _port(text: str) -> int:
    if text.isdigit() and len(text) <= 5 and str(int(text)) == text and int(text) <= LARGEST_PORT:
        return int(text)
    raise _wrong(f"{text!r} is no port")


def _parse_v2(data: bytes | bytearray) -> ParsedProxyHeader | None:
    """At most 16 bytes, and as many more as a 16-bit length can announce."""
    if len(data) < V2_FIXED_BYTES:
        return None
    version_and_command, family_number, length = V2_WORD.unpack_from(data, len(V2_SIGNATURE))
    version, command = version_and_command >> 4, version_and_command & 0x0F
    family = FAMILIES.get(family_number)
    if version != V2_VERSION:
        raise _wrong(f"version {version} does not exist")
    if command not in (V2_LOCAL, V2_PROXY):
        raise _wrong(f"command {command} does not exist")
    if family is None:
        raise _wrong(f"family {family_number:#04x} does not exist")
    if command == V2_PROXY and length < family.address_bytes:
        raise _wrong(f"{length} bytes hold no addresses of {family.name}")
    end = V2_FIXED_BYTES + length
    if len(data) < end:
        return None
    if command == V2_LOCAL:
        return ParsedProxyHeader(ProxyHeader(), end)
    _check_tlvs(data, V2_FIXED_BYTES + family.address_bytes, end)
    return ParsedProxyHeader(_read_addresses(data, family), end)


def _read_addresses(data: bytes | bytearray, family: _Family) -> ProxyHeader:
    if not family.form:
        return ProxyHeader()
    source, destination, source_port, destination_port = unpack_from(family.form, data, V2_FIXED_BYTES)
    kind = IPv4Address if family is _Family.TCP4 else IPv6Address
    return ProxyHeader(
        Endpoint(str(kind(source)), source_port),
        Endpoint(str(kind(destination)), destination_port),
    )


def _check_tlvs(data: bytes | bytearray, at: int, end: int) -> None:
    """Their content is not used, but they must fill the rest of the header exactly."""
    while at < end:
        if end - at < TLV_HEAD.size:
            raise _wrong("an additional field is cut off")
        _, length = TLV_HEAD.unpack_from(data, at)
        at += TLV_HEAD.size + length
        if at > end:
            raise _wrong("an additional field is longer than the header")


FIRST_BYTES = 12
"""RocketMQ's port decides nothing before 12 bytes have arrived. So a shorter frame, which no peer sends, waits for more
bytes. An HTTP port decides as soon as a byte cannot belong to a PROXY header.
"""
TLS_HANDSHAKE = 0x16


class Opened(NamedTuple):
    is_tls: bool
    proxy: ProxyHeader | None
    rest: bytes
    """The bytes that follow a PROXY header; never empty."""


class Opening:
    """Receives the first bytes until they decide what the connection brings.

    Whether a PROXY header is accepted depends on the peer's address, which the caller knows. A header that is not
    accepted reads as a frame of impossible length. At most one PROXY header (64 KiB) and the last chunk are kept.
    Without limits of frames, it is for an HTTP port.
    """

    def __init__(self, limits: FrameLimits | None, *, accepts_proxy: bool) -> None:
        self._limits = limits
        self._kept = bytearray()
        self._may_be_proxy = accepts_proxy
        self._proxy: ProxyHeader | None = None

    def receive(self, data: bytes) -> Opened | None:
        """None: more bytes are needed. Raises PeerProtocolError for an invalid PROXY header or an impossible length."""
        kept = self._kept
        kept += data
        if self._proxy is None:
            if self._limits and len(kept) < FIRST_BYTES:
                self._refuse_early(self._limits)
                return None
            if not kept:
                return None
            if self._may_be_proxy and may_begin_proxy_header(kept):
                parsed = parse_proxy_header(kept)
                if parsed is None:
                    return None
                self._proxy = parsed.header
                del kept[: parsed.length]
        if not kept:
            return None
        return Opened(kept[0] == TLS_HANDSHAKE, self._proxy, bytes(kept))

    @property
    def missing_bytes(self) -> int:
        """With fewer bytes than these in addition, nothing more can be decided."""
        kept = self._kept
        if not kept or self._limits is None or len(kept) >= FIRST_BYTES:
            return 1
        begins_frame = kept[0] != TLS_HANDSHAKE and not (self._may_be_proxy and may_begin_proxy_header(kept))
        return (LENGTH_BYTES if begins_frame and len(kept) < LENGTH_BYTES else FIRST_BYTES) - len(kept)

    def _refuse_early(self, limits: FrameLimits) -> None:
        """An impossible length is refused before twelve bytes have arrived."""
        kept = self._kept
        if len(kept) < LENGTH_BYTES or kept[0] == TLS_HANDSHAKE:
            return
        if self._may_be_proxy and may_begin_proxy_header(kept):
            return
        limits.check_length(int.from_bytes(kept[:LENGTH_BYTES], "big", signed=True))
