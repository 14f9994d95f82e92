"""How the first bytes decide what happens to a connection, however they arrive."""

import asyncio
import socket
from ipaddress import ip_network
from typing import Any

import pytest

from routebook.listeners import acceptor as acceptor_module
from routebook.listeners.acceptor import ConnectionLimits
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
def peeks(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What each peek at the first bytes returned."""
    results: list[bytes | None] = []
    original = acceptor_module._peek

    def recorded(sock: socket.socket) -> bytes | None:
        results.append(original(sock))
        return results[-1]

    monkeypatch.setattr(acceptor_module, "_peek", recorded)
    return results


async def test_the_protocol_gets_all_bytes() -> None:
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        (protocol,) = port.made
        assert protocol.data == LOOKUP
        assert protocol.info.peer == one.address
        assert not protocol.info.is_tls


async def test_nothing_is_decided_before_twelve_bytes() -> None:
    short = framed(b"{}")
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(short)
        await one.send(b"\0")
        await asyncio.sleep(0.05)
        assert port.made == []
        await one.send(b"\0")
        assert await one.receive(12) == short + b"\0\0"


async def test_single_bytes_cost_one_peek_each(peeks: list[bytes | None]) -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        for byte in V1:
            await one.send(bytes([byte]))
            await asyncio.sleep(0.005)
        before = len(peeks)
        await asyncio.sleep(0.2)
        assert len(peeks) == before <= len(V1) + 2
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        assert len(peeks) == before + 1


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
async def test_an_accepted_proxy_header_names_the_peer(header: bytes, source: Endpoint | None) -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(header)
        await one.send(LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        (protocol,) = port.made
        assert protocol.data == LOOKUP
        assert protocol.info.source == source
        assert protocol.info.peer == ("192.0.2.7:56324" if source else one.address)


async def test_a_proxy_header_of_ipv6_is_written_with_brackets() -> None:
    async with accepting(proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 9876\r\n" + LOOKUP)
        assert await one.receive(len(LOOKUP)) == LOOKUP
        assert port.made[0].info.peer == "[2001:db8::7]:56324"


@pytest.mark.parametrize("header", [V1, V2, V2_LOCAL])
async def test_a_proxy_header_from_another_network_is_refused_as_a_frame(header: bytes) -> None:
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


async def test_tls_is_refused_on_a_port_without_tls() -> None:
    async with accepting() as port, await Peer.connect(port.address) as one:
        await one.send(bytes.fromhex("160301020001000100") + bytes(100))
        assert await one.read_to_end() == b""
        assert port.refused("tls") == 1


@pytest.mark.parametrize("begin", [b"", b"\0", LOOKUP[:11]])
async def test_a_peer_that_leaves_while_pending_is_noticed_at_once(begin: bytes, peeks: list[bytes | None]) -> None:
    async with accepting() as port:
        async with await Peer.connect(port.address) as one:
            await one.send(begin)
            await until(lambda: port.acceptor.open_connections == 1)
        await until(lambda: port.acceptor.open_connections == 0)
        assert len(peeks) < 5


async def test_a_connection_that_has_begun_must_go_on() -> None:
    limits = ConnectionLimits(first_bytes_seconds=0.2)
    async with (
        accepting(limits=limits) as port,
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
    async with accepting(limits=ConnectionLimits(silent_seconds=0.2)) as port, await Peer.connect(port.address) as one:
        assert await one.read_to_end() == b""
        assert port.refused("silent") == 1


async def test_ended_connections_are_no_longer_counted() -> None:
    async with accepting() as port:
        async with await Peer.connect(port.address) as one, await Peer.connect(port.address) as other:
            for peer in (one, other):
                await peer.send(LOOKUP)
                await peer.receive(len(LOOKUP))
            assert port.acceptor.open_connections == 2
            value = port.metrics.registry.get_sample_value("routebook_connections", {"port": "remoting"})
            assert value == 2
        await until(lambda: port.acceptor.open_connections == 0)
        assert all(protocol.ended for protocol in port.made)


async def test_a_connection_has_the_socket_options_of_apaches_name_server() -> None:
    limits = ConnectionLimits(send_buffer_bytes=70_000, receive_buffer_bytes=80_000)
    async with accepting(limits=limits) as port, await Peer.connect(port.address) as one:
        await one.send(LOOKUP)
        await one.receive(len(LOOKUP))
        transport = port.made[0].transport
        assert transport is not None
        sock = socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno()))
        with sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            # Linux reserves twice as much as requested.
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (70_000, 140_000)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (80_000, 160_000)


@pytest.mark.parametrize("begin", [b"GET /", b"PUT /", b"POST", b"PATCH", b"G", b"\r\nG", b"PROPFIND"])
async def test_http_needs_no_more_bytes_than_decide(begin: bytes) -> None:
    async with accepting(**HTTP, proxy_from=LOOPBACK) as port, await Peer.connect(port.address) as one:
        await one.send(begin)
        assert await one.receive(len(begin)) == begin


async def test_http_accepts_proxy_headers() -> None:
    async with accepting(**HTTP, proxy_from=LOOPBACK) as port:
        for header in (V1, V2):
            async with await Peer.connect(port.address) as one:
                for byte in header:
                    await one.send(bytes([byte]))
                await one.send(b"G")
                assert await one.receive(1) == b"G"
                assert port.made[-1].info.peer == "192.0.2.7:56324"


async def test_http_answers_a_silent_connection_before_it_closes_it() -> None:
    limits = ConnectionLimits(silent_seconds=0.2)
    async with (
        accepting(**HTTP, limits=limits, too_slow_answer=b"too late") as port,
        await Peer.connect(port.address) as one,
    ):
        assert await one.receive(100) == b"too late"
        assert port.refused("silent", "http") == 1


async def test_a_stop_right_before_the_protocol_gets_the_socket_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with accepting() as port:
        hand_over = port.acceptor._hand_over

        async def stopped_before(*given: Any) -> None:
            port.acceptor.close()
            await hand_over(*given)

        monkeypatch.setattr(port.acceptor, "_hand_over", stopped_before)
        async with await Peer.connect(port.address) as one:
            await one.send(LOOKUP)
            assert await one.read_to_end() == b""
        await until(lambda: port.acceptor.open_connections == 0)


async def test_a_stop_right_after_a_connection_was_accepted_closes_it() -> None:
    """The task that leads the connection has not begun then, and cannot close the socket itself."""
    async with accepting() as port:
        with socket.create_connection(("127.0.0.1", port.number)) as sock:
            port.acceptor._accept()
            assert port.acceptor.open_connections == 1
            port.acceptor.close()
            await port.acceptor.wait_closed()
            assert port.acceptor.open_connections == 0
            assert await asyncio.to_thread(sock.recv, 1) == b""
        assert port.made == []


async def test_a_closed_acceptor_closes_only_pending_connections() -> None:
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


async def test_connections_that_the_kernel_made_before_a_stop_are_served() -> None:
    """The kernel connects before the acceptor accepts; a balancer cannot tell the difference."""
    async with accepting(proxy_from=LOOPBACK) as port:
        # Nothing is awaited in between, so the acceptor has not seen any of them.
        waiting = [socket.create_connection(("127.0.0.1", port.number)) for _ in range(40)]
        port.acceptor.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port.number))
        assert port.acceptor.open_connections == 40
        peers = [await Peer.over(sock) for sock in waiting]
        for one in peers:
            await one.send(V2 + LOOKUP)
            assert await one.receive(len(LOOKUP)) == LOOKUP
        await asyncio.wait_for(port.acceptor.wait_decided(), 30)
        for one in peers:
            one.abort()
        await asyncio.wait_for(port.acceptor.wait_empty(), 30)


async def test_close_ends_the_wait_for_silent_connections() -> None:
    async with accepting() as port:
        silent = socket.create_connection(("127.0.0.1", port.number))
        port.acceptor.stop_listening()
        decided = asyncio.ensure_future(port.acceptor.wait_decided())
        port.acceptor.close()
        await asyncio.wait_for(decided, 30)
        silent.close()
