"""TLS and PROXY headers before HTTP, and the client address that the application then sees."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from routebook.http_api.serving import AcceptorOptions, http_server
from routebook.listeners.tls import ServerTls, TlsOptions
from tests.http_api.ports import raw_connection, served
from tests.listeners.authorities import trusting

TRUSTED_NETWORKS = (ip_network("127.0.0.0/8"),)
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")


async def show_client(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse([scope["scheme"], *scope["client"]])(scope, receive, send)


@asynccontextmanager
async def tls_port(mode: str = "permissive") -> AsyncIterator[int]:
    tls = ServerTls(TlsOptions(mode=mode))  # type: ignore[arg-type]
    await tls.open()
    async with served(show_client, acceptor_options=AcceptorOptions(tls, TRUSTED_NETWORKS)) as port:
        yield port


async def shown_client(port: int, before: bytes, *, tls: bool = False) -> list[object]:
    async with raw_connection(port) as connection:
        if tls:
            # Balancers send the header before the handshake.
            sock = connection.writer.get_extra_info("socket")
            with socket.socket(fileno=socket.dup(sock.fileno())) as same:
                same.send(before)
            await connection.writer.start_tls(trusting(), server_hostname="localhost")
            await connection.send(REQUEST)
        else:
            await connection.send(before + REQUEST)
        answer = await connection.read_all()
    found: list[object] = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    return found


async def test_https_and_http_share_one_port() -> None:
    async with tls_port() as port, httpx.AsyncClient(verify=trusting()) as client:
        for scheme in ("http", "https"):
            answer = await client.get(f"{scheme}://127.0.0.1:{port}/")
            assert answer.json()[:2] == [scheme, "127.0.0.1"]


@pytest.mark.parametrize(("mode", "works", "fails"), [("enforcing", "https", "http"), ("disabled", "http", "https")])
async def test_the_tls_mode_allows_or_refuses_http_and_https(mode: str, works: str, fails: str) -> None:
    async with tls_port(mode) as port, httpx.AsyncClient(verify=trusting()) as client:
        assert (await client.get(f"{works}://127.0.0.1:{port}/")).json()[0] == works
        with pytest.raises((httpx.RemoteProtocolError, httpx.ConnectError, httpx.ReadError)):
            await client.get(f"{fails}://127.0.0.1:{port}/")


@pytest.mark.parametrize("tls", [False, True])
async def test_a_proxy_header_names_the_client(tls: bool) -> None:
    async with tls_port() as port:
        found = await shown_client(port, b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 8080\r\n", tls=tls)
        assert found == ["https" if tls else "http", "192.0.2.7", 56324]


@pytest.mark.parametrize("header", [SIGNATURE + b"\x20\x00\x00\x00", b"PROXY UNKNOWN\r\n"])
async def test_a_proxy_header_without_a_source_hides_the_balancer_address(header: bytes) -> None:
    """The balancer is on loopback, from where administrative verbs need no token."""
    async with tls_port() as port:
        found = await shown_client(port, header)
        assert found[1] == "proxied-by-127.0.0.1"


async def test_a_proxy_header_from_an_untrusted_sender_is_a_bad_request() -> None:
    async with (
        served(show_client, acceptor_options=AcceptorOptions(proxy_from=(ip_network("192.0.2.0/24"),))) as port,
        raw_connection(port) as connection,
    ):
        await connection.send(b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 8080\r\n" + REQUEST)
        assert b" 400 " in (await connection.read_all()).split(b"\r\n")[0]


async def test_a_connection_above_the_limit_is_closed() -> None:
    async with (
        served(show_client, acceptor_options=AcceptorOptions(max_connections=1)) as port,
        raw_connection(port) as first,
    ):
        await first.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await first.read_until(b"\r\n\r\n")
        async with raw_connection(port) as second:
            assert await second.read_all() == b""


async def test_a_stop_closes_an_idle_tls_connection() -> None:
    tls = ServerTls()
    await tls.open()
    async with httpx.AsyncClient(verify=trusting()) as client:
        async with served(show_client, acceptor_options=AcceptorOptions(tls)) as port:
            assert (await client.get(f"https://127.0.0.1:{port}/")).status_code == 200
        with pytest.raises(httpx.TransportError):
            await client.get(f"https://127.0.0.1:{port}/")


async def test_a_stop_answers_connections_that_were_already_open_and_closes_them() -> None:
    """The requests have no `connection: close`, so the server closes the connections itself."""
    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    listener = socket.create_server(("127.0.0.1", 0), backlog=20)
    server = http_server(show_client, request_timeout_ms=10_000, drain_ms=5000, acceptor_options=AcceptorOptions())
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([listener])
    # Nothing is awaited before the stop, so the server has not accepted any of them.
    waiting = [socket.create_connection(listener.getsockname()) for _ in range(20)]
    for sock in waiting:
        sock.sendall(request)
    await asyncio.wait_for(server.shutdown([listener]), 30)
    answers = [sock.recv(65536) for sock in waiting]
    assert [answer.split(b"\r\n", 1)[0] for answer in answers] == [b"HTTP/1.1 200 OK"] * 20
    for sock in waiting:
        assert sock.recv(1) == b""
        sock.close()
