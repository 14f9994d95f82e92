"""More connections than the limit: which are closed, which stay, and what is logged."""

import asyncio
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from routebook.listeners import acceptor as acceptor_module
from routebook.listeners.acceptor import ConnectionLimits
from routebook.listeners.peers import PeerLimits, Peers
from tests.listeners.ports import Echo, Port, accepting
from tests.protocol.plain_frames import json_lookup
from tests.support.peers import Peer
from tests.support.waiting import until

LOOKUP = json_lookup()


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a connection that has just been accepted may be closed."""
    monkeypatch.setattr(acceptor_module, "SPARED_SECONDS", 0.0)


async def answered_peer(port: Port) -> Peer:
    one = await Peer.connect(port.address)
    await one.send(LOOKUP)
    assert await one.receive(len(LOOKUP)) == LOOKUP
    return one


async def test_at_the_limit_new_connections_are_closed_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with accepting(limits=ConnectionLimits(max_connections=3)) as port:
        held = [await answered_peer(port) for _ in range(3)]
        for _ in range(5):
            async with await Peer.connect(port.address) as one:
                assert await one.read_to_end() == b""
        assert port.refused("full") == 5
        assert caplog.text.count("new connections are closed") == 1
        for one in held:
            await one.send(LOOKUP)
            assert await one.receive(len(LOOKUP)) == LOOKUP
        held.pop().abort()
        await until(lambda: port.acceptor.open_connections == 2)
        held.append(await answered_peer(port))
        for one in held:
            one.abort()


async def test_the_oldest_silent_connection_is_closed_first(no_grace: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "ROOM_AT_ONCE", 1)
    async with accepting(limits=ConnectionLimits(max_connections=3)) as port, await Peer.connect(port.address) as first:
        await until(lambda: port.acceptor.open_connections == 1)
        known = await answered_peer(port)
        async with await Peer.connect(port.address) as second:
            await until(lambda: port.acceptor.open_connections == 3)
            new = await answered_peer(port)
            assert await first.read_to_end() == b""
            assert port.refused("spared") == 1
            await second.send(LOOKUP)
            assert await second.receive(len(LOOKUP)) == LOOKUP
        for one in (known, new):
            one.abort()


async def test_connections_that_the_port_can_spare_are_closed_next() -> None:
    """This port spares the oldest; the remoting port spares those without sessions."""

    def close_one(_host: str | None) -> int:
        for protocol in made:
            if protocol.transport is not None and not protocol.transport.is_closing():
                protocol.transport.close()
                return 1
        return 0

    made: list[Echo] = []
    async with accepting(limits=ConnectionLimits(max_connections=2), make_room=close_one) as port:
        made = port.made
        first, second = await answered_peer(port), await answered_peer(port)
        third = await answered_peer(port)
        assert await first.read_to_end() == b""
        await second.send(LOOKUP)
        assert await second.receive(len(LOOKUP)) == LOOKUP
        assert port.refused("full") == 0
        for one in (first, second, third):
            one.abort()


async def test_a_connection_that_was_just_accepted_is_not_closed_for_the_next_one() -> None:
    async with accepting(limits=ConnectionLimits(max_connections=1)) as port, await Peer.connect(port.address) as first:
        await until(lambda: port.acceptor.open_connections == 1)
        async with await Peer.connect(port.address) as second:
            assert await second.read_to_end() == b""
        await first.send(LOOKUP)
        assert await first.receive(len(LOOKUP)) == LOOKUP


async def test_two_acceptors_share_the_connections_of_one_socket() -> None:
    """As two worker processes do. When one stops, the other keeps the socket."""
    async with accepting() as port:
        other = Port()
        other.listener.close()
        other.acceptor._listener = port.listener.dup()
        other.acceptor.start()
        for _ in range(20):
            (await answered_peer(port)).abort()
        other.acceptor.close()
        await other.acceptor.wait_closed()
        (await answered_peer(port)).abort()
        assert len(port.made) + len(other.made) == 21
        await until(lambda: other.acceptor.open_connections == 0)


OUT_OF_DESCRIPTORS = """
import asyncio, logging, os, resource, socket, sys, time
import uvloop
from tests.listeners.ports import accepting
from tests.support.peers import Peer
from tests.support.waiting import until
from tests.protocol.plain_frames import json_lookup

LOOKUP = json_lookup()
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")

async def main():
    async with accepting() as port:
        known = await Peer.connect(port.address)
        await known.send(LOOKUP)
        assert await known.receive(len(LOOKUP)) == LOOKUP
        # Made before the descriptors run out, because these sockets are in the same process.
        ready = [socket.socket() for _ in range(40)]
        for sock in ready:
            sock.setblocking(False)
        # sock_connect needs this codec, which cannot be loaded without a descriptor.
        "127.0.0.1".encode("idna")
        highest = max(int(name) for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc") else "/dev/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
        filler = []
        try:
            while True:
                filler.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        loop = asyncio.get_running_loop()
        before = time.process_time(), time.monotonic()
        for sock in ready[:20]:
            await loop.sock_connect(sock, ("127.0.0.1", port.number))
        shed = [await Peer.over(sock) for sock in ready[:20]]
        for peer in shed:
            assert await peer.read_to_end() == b""
        print("shed", port.refused("descriptors"))
        await asyncio.sleep(0.5)
        used = time.process_time() - before[0]
        assert used < (time.monotonic() - before[1]) / 2, used
        await known.send(LOOKUP)
        assert await known.receive(len(LOOKUP)) == LOOKUP
        for fd in filler:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
        await loop.sock_connect(ready[20], ("127.0.0.1", port.number))
        new = await Peer.over(ready[20])
        await new.send(LOOKUP)
        assert await new.receive(len(LOOKUP)) == LOOKUP
        print("taken again")
        for peer in [*shed, new, known]:
            peer.abort()
        for sock in ready[21:]:
            sock.close()

asyncio.run(main(), loop_factory=uvloop.new_event_loop) if sys.version_info >= (3, 12) else uvloop.run(main())
"""


def test_without_file_descriptors_it_closes_new_connections_and_logs_it_once() -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "shed 20" in ran.stdout
    assert "taken again" in ran.stdout
    assert ran.stdout.count("cannot accept connections") == 1


async def test_a_flood_of_silent_connections_leaves_room_for_one_that_sends_a_request(no_grace: None) -> None:
    """Fault 26, scaled down: far more connections than the limit, none of which sends anything."""
    async with accepting(limits=ConnectionLimits(max_connections=50)) as port:
        known = await answered_peer(port)
        flood = [await Peer.connect(port.address) for _ in range(300)]
        late = await answered_peer(port)
        await known.send(LOOKUP)
        assert await known.receive(len(LOOKUP)) == LOOKUP
        assert port.acceptor.open_connections <= 50
        for one in [*flood, known, late]:
            one.abort()
        await asyncio.sleep(0)


async def test_the_connections_of_one_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with accepting(peers=Peers(PeerLimits(connections=2)), address_full_answer=b"too many") as port:
        held = [await answered_peer(port) for _ in range(2)]
        async with await Peer.connect(port.address) as one:
            assert await one.read_to_end() == b"too many"
        assert port.refused("address") == 1
        assert "max_connections_per_address" in caplog.text
        async with await Peer.connect(port.address, local_addr=("127.0.0.2", 0)) as other:
            await other.send(LOOKUP)
            assert await other.receive(len(LOOKUP)) == LOOKUP
        held.pop().abort()
        await until(lambda: port.acceptor.open_connections == 1)
        held.append(await answered_peer(port))
        for one in held:
            one.abort()


async def test_a_silent_connection_counts_at_its_address() -> None:
    peers = Peers(PeerLimits(connections=2))
    async with accepting(peers=peers) as port, await Peer.connect(port.address), await Peer.connect(port.address):
        await until(lambda: peers.get("127.0.0.1").connections == 2)
        async with await Peer.connect(port.address) as one:
            assert await one.read_to_end() == b""
    await until(lambda: peers.get("127.0.0.1").connections == 0)


async def test_a_connection_counts_at_the_source_of_its_proxy_header() -> None:
    peers = Peers(PeerLimits(connections=1))
    async with accepting(peers=peers, proxy_from=(ip_network("127.0.0.0/8"),)) as port:
        held = []
        for host in ("198.51.100.1", "198.51.100.2"):
            one = await Peer.connect(port.address)
            await one.send(b"PROXY TCP4 %b 192.0.2.1 5000 9876\r\n" % host.encode() + LOOKUP)
            assert await one.receive(len(LOOKUP)) == LOOKUP
            held.append(one)
        async with await Peer.connect(port.address) as more:
            await more.send(b"PROXY TCP4 198.51.100.1 192.0.2.1 5001 9876\r\n" + LOOKUP)
            assert await more.read_to_end() == b""
        assert [made.info.peer_costs.host for made in port.made] == ["198.51.100.1", "198.51.100.2"]
        for one in held:
            one.abort()
