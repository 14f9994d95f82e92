"""What becomes of a connection by its first bytes, however they come."""

import asyncio
import socket
from ipaddress import ip_network
from typing import Any

import pytest

from routebook.listeners.acceptor import Undecided
from routebook.listeners.arrival import Bounds
from routebook.protocol.opening import Endpoint
from tests.listeners.ports import accepting
from tests.protocol.plain_frames import framed, json_lookup
from tests.support.peers import Peer
from tests.support.waiting import until

LOOKUP = json_lookup()
LOOPBACK = (ip_network("127.0.0.0/8"),)
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n"
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
ADDRESSES = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + (56324).to_bytes(2, "big") + (9876).to_bytes(2, "big")
V2 = SIGNATURE + b"\x21\x11" + len(ADDRESSES).to_bytes(2, "big") + ADDRESSES
V2_LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
LONGEST_V2 = SIGNATURE + b"\x21\x11\xff\xff" + ADDRESSES + b"\x04\xff\xf0" + bytes(0xFFF0)
HTTP: dict[str, Any] = {"port": "http", "frame_limits": None}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every look at first bytes."""
    seen: list[int] = []
    original = Undecided._look

    def counted(self: Undecided) -> None:
        seen.append(1)
        original(self)

    monkeypatch.setattr(Undecided, "_look", counted)
    return seen


async def test_frames_arrive_whole_at_the_protocol() -> None:
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        (heard,) = port.made
        assert heard.data == LOOKUP
        assert heard.arrival.peer == one.address
        assert not heard.arrival.is_tls


async def test_nothing_is_decided_before_twelve_bytes() -> None:
    short = framed(b"{}")
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(short)
        await one.send(b"\0")
        await asyncio.sleep(0.05)
        assert port.made == []
        await one.send(b"\0")
        assert await one.receive(12) == short + b"\0\0"


async def test_bytes_one_by_one_cost_a_look_each_and_no_more(looks: list[int]) -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        for byte in V1:
            await one.send(bytes([byte]))
            await asyncio.sleep(0.005)
        before = len(looks)
        await asyncio.sleep(0.2)
        assert len(looks) == before <= len(V1) + 2
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        assert len(looks) == before + 1


@pytest.mark.parametrize(
    ("header", "source"),
    [
        pytest.param(V1, Endpoint("192.0.2.7", 56324), id="v1"),
        pytest.param(V2, Endpoint("192.0.2.7", 56324), id="v2"),
        pytest.param(LONGEST_V2, Endpoint("192.0.2.7", 56324), id="longest v2"),
        pytest.param(V2_LOCAL, None, id="v2 local"),
        pytest.param(b"PROXY UNKNOWN\r\n", None, id="v1 unknown"),
    ],
)
async def test_a_believed_proxy_header_names_the_peer(header: bytes, source: Endpoint | None) -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(header)
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        (heard,) = port.made
        assert heard.data == LOOKUP
        assert heard.arrival.source == source
        assert heard.arrival.peer == ("192.0.2.7:56324" if source else one.address)


async def test_a_proxy_header_of_ipv6_is_written_with_brackets() -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 9876\r\n" + LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        assert port.made[0].arrival.peer == "[2001:db8::7]:56324"


@pytest.mark.parametrize("header", [V1, V2, V2_LOCAL])
async def test_from_another_network_it_is_a_frame_that_cannot_be(header: bytes) -> None:
    async with accepting(proxy_from=(ip_network("127.0.0.2/32"),)) as port:
        async with await Peer.connect(port.address) as one:
            await one.send(header[:4])
            assert await one.read_to_end() == b""
        async with await Peer.connect(port.address, local_addr=("127.0.0.2", 0)) as balancer:
            await balancer.send(header + LOOKUP)
            assert await balancer.receive(len(LOOKUP)) == LOOKUP
        assert port.refused("frame_length") == 1


async def test_a_malformed_proxy_header_ends_the_connection() -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(b"PROXY TCP4 here there 1 2\r\n")
        assert await one.read_to_end() == b""
        assert port.refused("proxy_header") == 1
        assert port.made == []


async def test_tls_is_closed_where_there_is_none() -> None:
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(bytes.fromhex("160301020001000100") + bytes(100))
        assert await one.read_to_end() == b""
        assert port.refused("tls") == 1


@pytest.mark.parametrize("begin", [b"", b"\0", LOOKUP[:11]])
async def test_who_leaves_undecided_is_forgotten_at_once(begin: bytes, looks: list[int]) -> None:
    async with accepting() as port:
        async with await Peer.connect(port.address) as one:
            await one.send(begin)
            await until(lambda: port.acceptor.open_connections == 1)
        await until(lambda: port.acceptor.open_connections == 0)
        assert len(looks) < 5


async def test_who_has_begun_must_go_on() -> None:
    bounds = Bounds(first_bytes_seconds=0.2)
    async with (
        accepting(bounds=bounds) as port,
        await Peer.connect(port.address) as slow,
        await Peer.connect(port.address) as silent,
    ):
        await slow.send(LOOKUP[:5])
        assert await slow.read_to_end() == b""
        assert port.refused("slow") == 1
        assert port.acceptor.open_connections == 1
        await silent.send(LOOKUP)
        assert await silent.receive(len(LOOKUP)) == LOOKUP


async def test_a_silent_connection_is_closed_like_any_idle_one() -> None:
    async with accepting(bounds=Bounds(silent_seconds=0.2)) as port, await Peer.connect(port.address) as one:
        assert await one.read_to_end() == b""
        assert port.refused("silent") == 1


async def test_the_counts_of_connections_follow_their_ends() -> None:
    async with accepting() as port:
        async with await Peer.connect(port.address) as one, await Peer.connect(port.address) as other:
            for line in (one, other):
                await line.send(LOOKUP)
                await line.receive(len(LOOKUP))
            assert port.acceptor.open_connections == 2
            value = port.metrics.registry.get_sample_value("routebook_connections", {"port": "remoting"})
            assert value == 2
        await until(lambda: port.acceptor.open_connections == 0)
        assert all(heard.ended for heard in port.made)


async def test_options_of_a_connection_are_those_of_apaches_server() -> None:
    bounds = Bounds(send_buffer_bytes=70_000, receive_buffer_bytes=80_000)
    async with accepting(bounds=bounds) as port, await Peer.connect(port.address) as one:
        await one.send(LOOKUP)
        await one.receive(len(LOOKUP))
        transport = port.made[0].transport
        assert transport is not None
        sock = socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno()))
        with sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            # Linux reserves twice what is asked for.
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (70_000, 140_000)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (80_000, 160_000)


@pytest.mark.parametrize("begin", [b"GET /", b"PUT /", b"POST", b"PATCH", b"G", b"\r\nG", b"PROPFIND"])
async def test_http_waits_for_no_more_than_it_takes(begin: bytes) -> None:
    async with accepting(**HTTP, proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(begin)
        assert await one.receive(len(begin)) == begin


async def test_http_takes_proxy_headers_and_then_what_comes() -> None:
    async with accepting(**HTTP, proxy_from=LOOPBACK) as port:
        for header in (V1, V2):
            async with await Peer.connect(port.address) as one:
                for byte in header:
                    await one.send(bytes([byte]))
                await one.send(b"G")
                assert await one.receive(1) == b"G"
                assert port.made[-1].arrival.peer == "192.0.2.7:56324"


async def test_http_says_farewell_to_the_silent() -> None:
    bounds = Bounds(silent_seconds=0.2)
    async with accepting(**HTTP, bounds=bounds, farewell=b"too late") as port, await Peer.connect(port.address) as one:
        assert await one.receive(100) == b"too late"
        assert port.refused("silent", "http") == 1


async def test_a_connection_that_a_stop_meets_between_two_steps_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with accepting() as port:
        opened = port.acceptor._opened

        def stopped_right_after(*given: Any) -> None:
            opened(*given)
            port.acceptor.close()

        monkeypatch.setattr(port.acceptor, "_opened", stopped_right_after)
        async with await Peer.connect(port.address) as one:
            await one.send(LOOKUP)
            assert await one.read_to_end() == b""
        assert port.made == []


async def test_a_closed_acceptor_lets_go_of_newcomers_only() -> None:
    async with accepting() as port, await Peer.connect(port.address) as known, await Peer.connect(port.address) as new:
        await known.send(LOOKUP)
        await known.receive(len(LOOKUP))
        await until(lambda: port.acceptor.open_connections == 2)
        port.acceptor.close()
        await port.acceptor.wait_closed()
        assert await new.read_to_end() == b""
        await known.send(b"still here")
        assert await known.receive(10) == b"still here"
        with pytest.raises(ConnectionRefusedError):
            async with await Peer.connect(port.address):
                pass


async def test_who_was_connected_when_the_listening_ended_is_still_served() -> None:
    """The kernel connects before anybody here accepts; behind a balancer there is no telling the two apart."""
    async with accepting(proxy_from=LOOPBACK) as port:
        # Nothing is awaited between the two: the acceptor has seen none of them.
        waiting = [socket.create_connection(("127.0.0.1", port.number)) for _ in range(40)]
        port.acceptor.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port.number))
        assert port.acceptor.open_connections == 40
        peers = [await Peer.over(sock) for sock in waiting]
        for one in peers:
            await one.send(V2 + LOOKUP)
            assert await one.receive(len(LOOKUP)) == LOOKUP
        await asyncio.wait_for(port.acceptor.wait_decided(), 5)
        for one in peers:
            one.abort()
        await asyncio.wait_for(port.acceptor.wait_empty(), 5)


async def test_a_close_ends_the_wait_for_those_who_say_nothing() -> None:
    async with accepting() as port:
        silent = socket.create_connection(("127.0.0.1", port.number))
        port.acceptor.stop_listening()
        decided = asyncio.ensure_future(port.acceptor.wait_decided())
        port.acceptor.close()
        await asyncio.wait_for(decided, 5)
        silent.close()
