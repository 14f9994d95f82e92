"""Deadlines of connections, with real sockets."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.http_api.ports import TIMEOUT_SECONDS, raw_connection, served
from tests.support.waiting import until

SHORT_MS = 300


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(body)(scope, receive, send)


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            # After the client disconnects, sending no longer waits, and without this the loop would be blocked.
            await asyncio.sleep(0)

    await StreamingResponse(parts())(scope, receive, send)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_complete_request_is_answered() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        await connection.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        answer = await connection.read_all()
    assert status_of(answer) == 200
    assert answer.endswith(b"hi")


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO counts segments on Linux only")
async def test_a_response_is_sent_as_a_whole() -> None:
    """Otherwise a balancer could receive the head from a worker that is killed before it sends the body."""
    async with served(echo) as port, raw_connection(port) as connection:
        for answered in range(1, 4):
            await connection.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
            await connection.read_until(b"\r\n\r\nhi")
            assert segments_received(connection.writer.get_extra_info("socket")) == answered


async def test_a_head_does_not_wait_for_its_body() -> None:
    body_wanted = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await body_wanted.wait()
        await send({"type": "http.response.body", "body": b"hi"})

    async with served(slow) as port, raw_connection(port) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await connection.read_until(b"\r\n\r\n")
        body_wanted.set()
        await connection.read_until(b"hi")


def segments_received(tcp: socket.socket) -> int:
    """`tcpi_data_segs_in`, the segments with data that this side has received."""
    end = 156
    return int.from_bytes(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, end)[end - 4 :], sys.byteorder)


@pytest.mark.parametrize(
    "start_of_request",
    [
        pytest.param("", id="nothing"),
        pytest.param("GET / HT", id="half a request line"),
        pytest.param("GET / HTTP/1.1\r\nhost: x\r\n", id="an incomplete head"),
        pytest.param("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc", id="an incomplete body"),
        pytest.param(
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            id="a chunked body without end",
        ),
    ],
)
async def test_an_incomplete_request_gets_408_and_is_closed(start_of_request: str) -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        start = time.monotonic()
        await connection.send(start_of_request)
        answer = await connection.read_all()
    assert 0.2 < time.monotonic() - start < 5
    head, body = answer.split(b"\r\n\r\n")
    assert status_of(head) == 408
    assert b"connection: close" in head
    assert json.loads(body)["type"] == "request-too-slow"


@pytest.mark.parametrize(
    "start_of_request", ["GET / HTTP/1.1\r\nx: ", "POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n", "\r\n"]
)
async def test_single_bytes_do_not_extend_the_deadline(start_of_request: str) -> None:
    byte = b"\r\n" if start_of_request == "\r\n" else b"x"
    async with served(echo, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        start = time.monotonic()
        await connection.send(start_of_request)
        while not connection.reader.at_eof():
            assert time.monotonic() - start < 5
            try:
                await connection.send(byte)
                connection.reader._buffer.clear()  # type: ignore[attr-defined]
            except ConnectionError:
                break
            await asyncio.sleep(0.02)


async def test_an_incomplete_second_request_is_closed_too() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert status_of(await connection.read_until(b"\r\n\r\n")) == 200
        await connection.send("GET / HTTP/1.1\r\n")
        assert status_of(await connection.read_all()) == 408


async def test_a_connection_with_many_requests_lives_longer_than_the_deadline() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        start = time.monotonic()
        while time.monotonic() - start < 3 * SHORT_MS / 1000:
            await connection.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert status_of(await connection.read_until(b"\r\n\r\n")) == 200
            await asyncio.sleep(0.03)


async def test_a_slow_response_does_not_count_against_the_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(3 * SHORT_MS / 1000)
        await PlainTextResponse("late")(scope, receive, send)

    async with served(slow, request_timeout_ms=SHORT_MS) as port, raw_connection(port) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert status_of(await connection.read_all()) == 200


async def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    async with served(flood, request_timeout_ms=SHORT_MS) as port, raw_connection(port, read_limit=1024) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await connection.read_until(b"\r\n")

        async def is_closed() -> bool:
            try:
                await connection.send(b"\r\n")
            except ConnectionError:
                return True
            return False

        await until(is_closed)


async def test_bytes_that_are_not_http_get_a_problem() -> None:
    async with served(echo) as port, raw_connection(port) as connection:
        await connection.send("\x17\x03\x01 hello\r\n\r\n")
        head, body = (await connection.read_all()).split(b"\r\n\r\n")
    assert status_of(head) == 400
    assert json.loads(body)["type"] == "bad-request"


async def test_x_forwarded_for_is_ignored() -> None:
    async def show_client(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["client"][0])(scope, receive, send)

    async with served(show_client) as port, raw_connection(port) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.7\r\nconnection: close\r\n\r\n")
        assert (await connection.read_all()).endswith(b"127.0.0.1")


async def test_a_response_to_a_connection_that_was_closed_meanwhile_is_dropped() -> None:
    """uvicorn closes a connection whose next request is malformed while the one before is being answered."""
    answer_wanted = asyncio.Event()
    sent = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_wanted.wait()
        await PlainTextResponse("late")(scope, receive, send)
        sent.set()

    async with served(slow) as port, raw_connection(port) as connection:
        await connection.send("GET / HTTP/1.1\r\nhost: x\r\n\r\nno request\r\n\r\n")
        assert await connection.read_all() == b""
        answer_wanted.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await sent.wait()
