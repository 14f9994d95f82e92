"""A3: endless and unfinished HTTP headers. Each costs what its limit allows, not the square of what was sent."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests.attacks.attacked_service import MIB, HighestMemory, attacked_service, connect, connect_http
from tests.attacks.lookups import Lookups
from tests.remoting.port import register
from tests.support.peers import Peer

GET = b"GET /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"PUT /v1/topics/a HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * MIB


async def send(peer: Peer, *pieces: bytes) -> None:
    with suppress(ConnectionError):
        for piece in pieces:
            await peer.send(piece)


async def status_of(peer: Peer) -> int:
    """0 if the connection was closed while the response was lost: more had been sent."""
    answer = await peer.read_to_end()
    return int(answer.split(b" ", 2)[1]) if answer else 0


ENDLESS = {
    "header": (GET + b"X-Long: ", *(60 * [PIECE])),
    "name": (GET, *(60 * [PIECE])),
    "request line": (b"GET /", *(60 * [PIECE])),
    "headers": (GET, *(60 * [b"X: y\r\n" * (MIB // 6)])),
    "trailers": (CHUNKED + b"0\r\n", *(60 * [b"X: y\r\n" * (MIB // 6)])),
    "trailer": (CHUNKED + b"0\r\nX: ", *(60 * [PIECE])),
    "chunk extension": (CHUNKED + b"1;", *(60 * [PIECE])),
}


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS.keys())
async def test_endless_headers_are_refused(
    store_url: str, namespace_name: str, tmp_path: Path, pieces: tuple[bytes, ...]
) -> None:
    async with (
        attacked_service(store_url, namespace_name, tmp_path) as service,
        await connect(service) as peer,
        await connect_http(service) as attacker,
    ):
        await register(peer)
        async with Lookups(service.remoting, "TopicA") as lookups, HighestMemory(service) as memory:
            looking = asyncio.create_task(lookups.run(3))
            await send(attacker, *pieces)
            assert await status_of(attacker) in (0, 400, 431)
            await looking
        print(f"longest lookup {lookups.longest:.3f} s, {memory.growth:.0f} MiB more")
        assert lookups.longest < 1
        assert memory.growth < 40


async def test_unfinished_headers_of_many_connections_are_bounded(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path) as service, AsyncExitStack() as stack:
        attackers = [await stack.enter_async_context(await connect_http(service)) for _ in range(40)]
        async with HighestMemory(service) as memory:
            async with asyncio.timeout(30):
                await asyncio.gather(*(send(one, GET + b"X-Long: ", *(8 * [PIECE])) for one in attackers))
            await asyncio.sleep(0.5)
        print(f"{memory.growth:.0f} MiB more")
        assert memory.growth < 60
        assert (await asyncio.to_thread(service.get, "/v1/topics")).status_code == 200


async def test_headers_within_the_limits_are_accepted_however_they_arrive(
    store_url: str, namespace_name: str, tmp_path: Path
) -> None:
    async with attacked_service(store_url, namespace_name, tmp_path) as service:
        head = GET + b"".join(b"X-%d: %b\r\n" % (number, b"y" * 600) for number in range(90))
        async with await connect_http(service) as peer:
            await peer.send(b"".join([head + b"\r\n"] * 20) + head + b"Connection: close\r\n\r\n")
            assert (await peer.read_to_end()).count(b"HTTP/1.1 200") == 21
        async with await connect_http(service) as peer:
            request = head + b"Connection: close\r\n\r\n"
            for at in range(0, len(request), 5_000):
                await peer.send(request[at : at + 5_000])
            assert await status_of(peer) == 200
        async with await connect_http(service) as peer:
            await peer.send(GET + b"".join(b"X-%d: y\r\n" % number for number in range(100)) + b"\r\n")
            assert await status_of(peer) == 431
        async with await connect_http(service) as peer:
            await peer.send(GET + b"X-Long: " + b"y" * 20_000 + b"\r\n\r\n")
            answer = await peer.read_to_end()
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert b"max_http_header_line_bytes" in answer
