"""PROXY headers, TLS and the limit of connections on the whole port: requests are answered as usual."""

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from routebook.listeners import acceptor as acceptor_module
from routebook.listeners.tls import ServerTls, TlsOptions
from routebook.remoting import port as port_module
from routebook.remoting import room as room_module
from tests.listeners.authorities import Authority, replace_file, trusting
from tests.protocol.plain_frames import framed
from tests.remoting.port import PortUnderTest, lookup, register, remoting_port, route
from tests.support.peers import Peer
from tests.support.waiting import until

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
ADDRESSES = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + (56324).to_bytes(2, "big") + (9876).to_bytes(2, "big")
LOOPBACK = "127.0.0.0/8"
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n"
V2 = SIGNATURE + b"\x21\x11\x00\x0c" + ADDRESSES
V2_LOCAL = SIGNATURE + b"\x20\x00\x00\x00"


async def opened(**options: Any) -> ServerTls:
    tls = ServerTls(TlsOptions(**options))
    await tls.open()
    return tls


async def tls_peer(port: PortUnderTest, context: ssl.SSLContext | None = None, first: bytes = b"") -> Peer:
    """`first` is sent before the handshake."""
    peer = await Peer.connect(port.address)
    peer.write(first)
    await peer.start_tls(context or trusting())
    return peer


def peer_names(port: PortUnderTest) -> set[str]:
    return {connection.peer for connection in port.server.port.connections}


@pytest.mark.parametrize("header", [V1, V2, V2_LOCAL], ids=["v1", "v2", "v2 local"])
async def test_requests_after_an_accepted_proxy_header_are_answered(
    store_url: str, namespace_name: str, header: bytes
) -> None:
    async with (
        remoting_port(store_url, namespace_name, proxy_from=LOOPBACK) as port,
        await Peer.connect(port.address) as peer,
    ):
        for byte in header:
            peer.write(bytes([byte]))
        assert (await register(peer)).code == 0
        assert (await route(peer, "TopicA"))["brokerDatas"]
        assert peer_names(port) == {peer.address if header == V2_LOCAL else "192.0.2.7:56324"}


@pytest.mark.parametrize("header", [V1, V2, V2_LOCAL], ids=["v1", "v2", "v2 local"])
@pytest.mark.parametrize("proxy_from", ["192.0.2.0/24", ""], ids=["another network", "none, as by default"])
async def test_a_proxy_header_from_another_network_closes_the_connection(
    store_url: str, namespace_name: str, header: bytes, proxy_from: str
) -> None:
    async with remoting_port(store_url, namespace_name, proxy_from=proxy_from) as port:
        async with await Peer.connect(port.address) as peer:
            peer.write(header + peer.request(206))
            assert await peer.is_closed()
        async with await Peer.connect(port.address) as peer:
            assert (await peer.ask(206)).code == 0


@pytest.mark.parametrize(
    ("mode", "takes_tls", "takes_plain"),
    [("permissive", True, True), ("enforcing", True, False), ("disabled", False, True)],
)
async def test_the_tls_mode_decides_which_connections_are_served(
    store_url: str, namespace_name: str, mode: str, takes_tls: bool, takes_plain: bool
) -> None:
    async with remoting_port(store_url, namespace_name, tls=await opened(mode=mode)) as port:
        if takes_tls:
            async with await tls_peer(port) as peer:
                await register(peer)
                assert (await lookup(peer, "TopicA")).code == 0
        else:
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await tls_peer(port)
        async with await Peer.connect(port.address) as peer:
            peer.write(peer.request(206))
            if takes_plain:
                assert (await peer.answer()).code == 0
            else:
                assert await peer.is_closed()


@pytest.mark.parametrize("header", [V1, V2])
async def test_tls_after_a_proxy_header(store_url: str, namespace_name: str, header: bytes) -> None:
    async with (
        remoting_port(store_url, namespace_name, tls=await opened(), proxy_from=LOOPBACK) as port,
        await tls_peer(port, first=header) as peer,
    ):
        assert (await peer.ask(206)).code == 0
        assert peer_names(port) == {"192.0.2.7:56324"}


async def test_a_large_body_and_pipelined_requests_work_over_tls(store_url: str, namespace_name: str) -> None:
    async with remoting_port(store_url, namespace_name, tls=await opened()) as port, await tls_peer(port) as peer:
        topics = [f"Topic{number}" for number in range(2000)]
        assert (await register(peer, *topics)).code == 0
        peer.write(b"".join(peer.request(105, {"topic": "Topic7"}) for _ in range(500)))
        assert {(await peer.answer()).code for _ in range(500)} == {0}
        assert (await peer.ask(206)).code == 0


async def test_a_frame_of_less_than_twelve_bytes_waits_for_more(port: PortUnderTest) -> None:
    async with await Peer.connect(port.address) as peer:
        peer.write(framed(b"{}"))
        await asyncio.sleep(0.05)
        assert not port.server.port.connections
        peer.write(peer.request(206))
        assert 1 in {(await peer.answer()).opaque, (await peer.answer()).opaque}


async def test_a_first_frame_in_single_bytes_is_answered_and_a_stalled_one_closed(
    store_url: str, namespace_name: str
) -> None:
    async with remoting_port(store_url, namespace_name, incomplete_frame_timeout_ms=400) as port:
        async with await Peer.connect(port.address) as peer:
            for byte in peer.request(206):
                peer.write(bytes([byte]))
            assert (await peer.answer()).code == 0
        async with await Peer.connect(port.address) as peer:
            peer.write(peer.request(206)[:9])
            assert await peer.is_closed()


async def test_the_deadline_of_the_first_frame_begins_with_its_first_byte(port: PortUnderTest) -> None:
    """Not with the twelfth, which decides what the connection brings: a slow sender must not get twice the time."""
    async with await Peer.connect(port.address) as peer:
        frame = peer.request(206)
        peer.write(frame[:5])
        await asyncio.sleep(0.05)
        decided_after = time.monotonic()
        peer.write(frame[5:20])
        await until(lambda: port.server.port.connections)
        (connection,) = port.server.port.connections
        await until(lambda: connection.unfinished_since(time.monotonic()) < decided_after)
        peer.write(frame[20:])
        assert (await peer.answer()).code == 0
        assert connection.unfinished_since(time.monotonic()) == float("inf")


async def test_a_hundred_certificate_changes_close_no_connection(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    """Fault 32, with two certificates in turn."""
    authority = Authority(tmp_path)
    pairs = [authority.issue("one"), authority.issue("other")]
    files = {"key_path": tmp_path / "key.pem", "cert_path": tmp_path / "cert.pem"}

    def write(number: int) -> None:
        replace_file(files["key_path"], pairs[number % 2].key)
        replace_file(files["cert_path"], pairs[number % 2].certificate)

    write(0)
    tls = await opened(test_mode=False, **{name: str(path) for name, path in files.items()})
    async with (
        remoting_port(store_url, namespace_name, tls=tls) as port,
        await tls_peer(port, authority.client()) as broker,
        await Peer.connect(port.address) as plain,
    ):
        await register(broker)
        for number in range(1, 101):
            write(number)
            tls.look()
            assert (await lookup(broker if number % 2 else plain, "TopicA")).code == 0
        replace_file(files["key_path"], b"not a key")
        replace_file(files["cert_path"], b"not a certificate")
        tls.look()
        async with await tls_peer(port, authority.client()) as late:
            assert (await lookup(late, "TopicA")).code == 0
        assert tls.loads == 101
        assert (await register(broker)).code == 0


async def test_at_the_limit_brokers_keep_their_connections(
    store_url: str, namespace_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 26, scaled down: more idle and silent connections than the limit."""
    monkeypatch.setattr(port_module, "SWEEP_S", 0.05)
    monkeypatch.setattr(acceptor_module, "SPARED_SECONDS", 0.0)
    monkeypatch.setattr(acceptor_module, "ROOM_AT_ONCE", 2)
    monkeypatch.setattr(room_module, "SPARED_AT_ONCE", 2)
    async with remoting_port(store_url, namespace_name, max_connections=10) as port:
        broker = await Peer.connect(port.address)
        await register(broker)
        idle = [await Peer.connect(port.address) for _ in range(9)]
        for one in idle:
            await one.ask(206)
        await until(lambda: port.server.port.room.idle_connections >= 9)
        silent = [await Peer.connect(port.address) for _ in range(30)]
        async with await Peer.connect(port.address) as late:
            assert (await late.ask(206)).code == 0
        assert (await lookup(broker, "TopicA")).code == 0
        assert port.server.port.cut["room"] > 0
        for one in [*idle, *silent, broker]:
            one.abort()
