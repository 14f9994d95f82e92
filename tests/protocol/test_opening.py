"""The first bytes of a connection: PROXY header, TLS, frames or HTTP, in whatever chunks they arrive."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.protocol.frame import FrameLimits, PeerProtocolError, Violation
from routebook.protocol.opening import Endpoint, Opened, Opening, ProxyHeader
from tests.protocol.plain_frames import framed, json_lookup, split

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
ADDRESSES4 = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + (56324).to_bytes(2, "big") + (9876).to_bytes(2, "big")
ADDRESSES6 = bytes.fromhex("20010db800000000000000000000000720010db8000000000000000000000001dc042694")
FROM4 = ProxyHeader(Endpoint("192.0.2.7", 56324), Endpoint("198.51.100.1", 9876))
FROM6 = ProxyHeader(Endpoint("2001:db8::7", 56324), Endpoint("2001:db8::1", 9876))
LOOKUP = json_lookup()
CLIENT_HELLO = bytes.fromhex("160301020001000100") + bytes(100)


def v2(command: int, family: int, payload: bytes, version: int = 2, length: int | None = None) -> bytes:
    announced = len(payload) if length is None else length
    return SIGNATURE + bytes([version << 4 | command, family]) + announced.to_bytes(2, "big") + payload


def open_with(pieces: list[bytes], *, accepts_proxy: bool = True) -> Opened | None:
    """As a port does: what follows the decision is not passed to the Opening."""
    opening = Opening(FrameLimits(), accepts_proxy=accepts_proxy)
    for number, piece in enumerate(pieces, start=1):
        opened = opening.receive(piece)
        if opened:
            return opened._replace(rest=opened.rest + b"".join(pieces[number:]))
    return None


GOOD = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n", FROM4),
    (b"PROXY TCP6 2001:db8::7 2001:db8:0:0::1 56324 9876\r\n", FROM6),
    (b"PROXY UNKNOWN\r\n", ProxyHeader()),
    (b"PROXY UNKNOWN whatever stands here 1\r\n", ProxyHeader()),
    (b"PROXY UNKNOWN" + b" " * 92 + b"\r\n", ProxyHeader()),
    (v2(1, 0x11, ADDRESSES4), FROM4),
    (v2(1, 0x21, ADDRESSES6), FROM6),
    (v2(1, 0x11, ADDRESSES4 + bytes.fromhex("0200036162634e0000")), FROM4),
    (v2(1, 0x21, ADDRESSES6 + b"\x20\xff\x00" + bytes(0xFF00)), FROM6),
    (v2(0, 0x00, b""), ProxyHeader()),
    (v2(0, 0x11, b"ignored"), ProxyHeader()),
    (v2(1, 0x00, b""), ProxyHeader()),
    (v2(1, 0x12, ADDRESSES4), ProxyHeader()),
    (v2(1, 0x22, ADDRESSES6), ProxyHeader()),
    (v2(1, 0x31, bytes(216)), ProxyHeader()),
    (v2(1, 0x32, bytes(216)), ProxyHeader()),
]


@pytest.mark.parametrize(("proxy", "header"), GOOD, ids=[repr(proxy[:30]) for proxy, _ in GOOD])
@pytest.mark.parametrize("what_follows", [LOOKUP, CLIENT_HELLO, b"\x16", b"\0"])
def test_a_proxy_header_is_removed(proxy: bytes, header: ProxyHeader, what_follows: bytes) -> None:
    whole = proxy + what_follows
    expected = Opened(what_follows[0] == 0x16, header, what_follows)
    assert open_with([whole]) == expected
    assert open_with([proxy, what_follows]) == expected
    assert open_with([bytes([byte]) for byte in whole[:2_000]] + [whole[2_000:]]) == expected


def test_nothing_is_decided_while_a_proxy_header_is_incomplete() -> None:
    for proxy, _ in GOOD:
        assert open_with([proxy]) is None
        assert open_with([proxy[:-1]]) is None


@settings(deadline=None)
@given(st.sampled_from([b"", *(proxy for proxy, _ in GOOD[:8])]), st.lists(st.integers(0, 200)))
def test_the_pieces_of_the_first_bytes_make_no_difference(proxy: bytes, cuts: list[int]) -> None:
    whole = proxy + LOOKUP * 2
    assert open_with(split(whole, cuts)) == open_with([whole])


BAD = [
    b"PROXY\r\n0000000000000",
    b"PROXY \r\n0000000000000",
    b"PROXYTCP4 192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY UNKNOWNS\r\n",
    b"PROXY UDP4 192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP5 192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY tcp4 192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876 1\r\n",
    b"PROXY TCP4  192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876 \r\n",
    b"PROXY TCP4 192.0.2 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP4 192.0.2.256 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP4 192.0.02.7 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 56324 9876\r\n",
    b"PROXY TCP6 192.0.2.7 198.51.100.1 56324 9876\r\n",
    b"PROXY TCP6 fe80::1%eth0 2001:db8::1 56324 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 056 9876\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 x 9876\r\n",
    "PROXY TCP4 192.0.2.7 198.51.100.1 \uff15\uff16 9876\r\n".encode(),
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\n" + bytes(100),
    b"PROXY UNKNOWN" + b"x" * 93 + b"\r\n",
    b"PROXY" + b"x" * 102,
    v2(1, 0x11, ADDRESSES4, version=1),
    v2(1, 0x11, ADDRESSES4, version=3),
    v2(2, 0x11, ADDRESSES4),
    v2(15, 0x11, ADDRESSES4),
    v2(1, 0x13, ADDRESSES4),
    v2(1, 0x41, ADDRESSES4),
    v2(1, 0x01, ADDRESSES4),
    v2(1, 0x11, ADDRESSES4[:-1]),
    v2(1, 0x11, b""),
    v2(1, 0x21, ADDRESSES4),
    v2(1, 0x31, bytes(215)),
    v2(1, 0x11, ADDRESSES4 + b"\x02"),
    v2(1, 0x11, ADDRESSES4 + b"\x02\x00"),
    v2(1, 0x11, ADDRESSES4 + b"\x02\x00\x04abc"),
    v2(1, 0x11, ADDRESSES4 + b"\x02\xff\xff"),
]


@pytest.mark.parametrize("data", BAD, ids=[repr(data[:60]) for data in BAD])
def test_an_invalid_proxy_header_is_refused(data: bytes) -> None:
    for pieces in ([data], [bytes([byte]) for byte in data]):
        with pytest.raises(PeerProtocolError) as caught:
            open_with(pieces)
        assert caught.value.violation is Violation.PROXY_HEADER


def test_an_endless_proxy_line_is_refused_at_its_limit() -> None:
    opening = Opening(FrameLimits(), accepts_proxy=True)
    assert opening.receive(b"PROXY UNKNOWN" + b"x" * 93) is None
    with pytest.raises(PeerProtocolError):
        opening.receive(b"x")


def test_a_proxy_header_that_is_not_accepted_is_a_frame_of_impossible_length() -> None:
    for proxy, _ in GOOD:
        with pytest.raises(PeerProtocolError) as caught:
            open_with([proxy[:4]], accepts_proxy=False)
        assert caught.value.violation is Violation.FRAME_LENGTH
        opened = open_with([proxy], accepts_proxy=False)
        assert opened == Opened(False, None, proxy)  # The frame reader refuses it.


@pytest.mark.parametrize("accepts_proxy", [True, False])
def test_a_handshake_is_recognized_by_its_first_byte(accepts_proxy: bool) -> None:
    assert open_with([CLIENT_HELLO], accepts_proxy=accepts_proxy) == Opened(True, None, CLIENT_HELLO)
    assert open_with([bytes([byte]) for byte in CLIENT_HELLO], accepts_proxy=accepts_proxy) == Opened(
        True, None, CLIENT_HELLO
    )


@pytest.mark.parametrize("accepts_proxy", [True, False])
def test_everything_else_is_frames(accepts_proxy: bool) -> None:
    assert open_with([LOOKUP], accepts_proxy=accepts_proxy) == Opened(False, None, LOOKUP)


def test_nothing_is_decided_before_twelve_bytes() -> None:
    short = framed(b"{}")
    assert len(short) == 10
    assert open_with([short]) is None
    assert open_with([short, b"\0"]) is None
    assert open_with([short, b"\0", b"\0"]) == Opened(False, None, short + b"\0\0")


@pytest.mark.parametrize("data", [LOOKUP, CLIENT_HELLO, *(proxy + LOOKUP for proxy, _ in GOOD[:8]), b"GET / HTTP/1.1"])
@pytest.mark.parametrize("accepts_proxy", [True, False])
def test_fewer_than_the_missing_bytes_decide_nothing(data: bytes, accepts_proxy: bool) -> None:
    """A port waits until all of them have arrived. Tried after each number of bytes."""
    for count in range(len(data)):
        opening = Opening(FrameLimits(), accepts_proxy=accepts_proxy)
        try:
            if opening.receive(data[:count]) is not None:
                return
        except PeerProtocolError:
            return
        missing = opening.missing_bytes
        assert missing >= 1
        for byte in data[count : count + missing - 1]:
            assert opening.receive(bytes([byte])) is None
    pytest.fail("nothing was decided")


@pytest.mark.parametrize(("begin", "missing"), [(b"", 1), (b"\0", 3), (b"\0\0\1", 1), (b"\0\0\1\0", 8), (b"\x16", 11)])
def test_single_bytes_of_a_frame_decide_nothing_before_its_length_and_its_beginning(begin: bytes, missing: int) -> None:
    opening = Opening(FrameLimits(), accepts_proxy=True)
    assert opening.receive(begin) is None
    assert opening.missing_bytes == missing


@pytest.mark.parametrize("length", [2**30, -1, 0, 3])
@pytest.mark.parametrize("accepts_proxy", [True, False])
def test_an_impossible_length_is_refused_on_four_bytes(length: int, accepts_proxy: bool) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        open_with([length.to_bytes(4, "big", signed=True)], accepts_proxy=accepts_proxy)
    assert caught.value.violation is Violation.FRAME_LENGTH


def http_opens_with(pieces: list[bytes], *, accepts_proxy: bool = True) -> Opened | None:
    opening = Opening(None, accepts_proxy=accepts_proxy)
    return next((opened for piece in pieces if (opened := opening.receive(piece))), None)


@pytest.mark.parametrize("begin", [b"G", b"PU", b"PO", b"PA", b"PROP", b"\r\nG", b"\r\n\r\n\r", b"\0"])
def test_http_is_recognized_by_the_first_byte_that_no_proxy_header_has(begin: bytes) -> None:
    pieces = [bytes([byte]) for byte in begin]
    assert http_opens_with(pieces) == Opened(False, None, begin)
    assert http_opens_with(pieces[:-1]) is None
    assert http_opens_with([begin[:1]], accepts_proxy=False) == Opened(False, None, begin[:1])


@pytest.mark.parametrize(("proxy", "header"), GOOD, ids=[repr(proxy[:30]) for proxy, _ in GOOD])
@pytest.mark.parametrize("what_follows", [b"G", b"\x16"])
def test_http_may_follow_a_proxy_header(proxy: bytes, header: ProxyHeader, what_follows: bytes) -> None:
    whole = proxy + what_follows
    expected = Opened(what_follows == b"\x16", header, what_follows)
    assert http_opens_with([whole]) == expected
    assert http_opens_with([bytes([byte]) for byte in whole]) == expected
    assert http_opens_with([proxy]) is None


def test_a_handshake_before_http_is_recognized_by_its_first_byte() -> None:
    for accepts_proxy in (True, False):
        assert http_opens_with([b"\x16"], accepts_proxy=accepts_proxy) == Opened(True, None, b"\x16")
    assert http_opens_with([b""]) is None
