"""What a connection begins with: perhaps a PROXY header, then TLS or frames. Found out once, from the first bytes.

There is no ambiguity: a PROXY header or a TLS handshake read as a frame's length would be far above any limit. The HTTP
port asks the same question, of connections that bring requests instead of frames; no method begins with either.
"""

from typing import NamedTuple

from routebook.wire.frame import LENGTH_BYTES, FrameLimits
from routebook.wire.proxy_header import ProxyHeader, may_begin_proxy_header, parse_proxy_header

FIRST_BYTES = 12
"""Of frames. The reference decides nothing before; so a shorter frame, which no peer sends, waits for what comes after
it. HTTP is decided by the first byte that is no PROXY header's."""
TLS_HANDSHAKE = 0x16


class Opened(NamedTuple):
    is_tls: bool
    proxy: ProxyHeader | None
    rest: bytes
    """What has arrived of TLS, of the frames or of the request; never empty."""


class Opening:
    """Fed until it says what the connection is; not used afterwards.

    Its owner has looked at the peer's address: where PROXY headers are not believed, one is a frame of impossible
    length. What it keeps is one PROXY header at most (64 KiB), and the chunk that came last. Without limits of frames
    it is HTTP's.
    """

    def __init__(self, limits: FrameLimits | None, *, accepts_proxy: bool) -> None:
        self._limits = limits
        self._kept = bytearray()
        self._may_be_proxy = accepts_proxy
        self._proxy: ProxyHeader | None = None

    def receive(self, data: bytes) -> Opened | None:
        """None: more bytes are needed. Raises PeerProtocolError for a PROXY header or a length that cannot be."""
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

    def _refuse_early(self, limits: FrameLimits) -> None:
        """Who announces too much need not send twelve bytes to be refused."""
        kept = self._kept
        if len(kept) < LENGTH_BYTES or kept[0] == TLS_HANDSHAKE:
            return
        if self._may_be_proxy and may_begin_proxy_header(kept):
            return
        limits.check_length(int.from_bytes(kept[:LENGTH_BYTES], "big", signed=True))
