"""Deadlines of connections, over real sockets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.http_api.ports import line_to, served
from tests.support.waiting import until

SHORT_MS = 300


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(body)(scope, receive, send)


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            # Once the client is gone sending never waits, and this would never let go of the loop.
            await asyncio.sleep(0)

    await StreamingResponse(parts())(scope, receive, send)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_whole_request_is_answered() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        await line.say("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        answer = await line.all()
    assert status_of(answer) == 200
    assert answer.endswith(b"hi")


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param("", id="nothing at all"),
        pytest.param("GET / HT", id="half a request line"),
        pytest.param("GET / HTTP/1.1\r\nhost: x\r\n", id="an unfinished head"),
        pytest.param("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc", id="an unfinished body"),
        pytest.param(
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", id="an unending body"
        ),
    ],
)
async def test_an_unfinished_request_is_told_and_closed_in_time(begin: str) -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        start = time.monotonic()
        await line.say(begin)
        answer = await line.all()
    assert 0.2 < time.monotonic() - start < 5
    head, body = answer.split(b"\r\n\r\n")
    assert status_of(head) == 408
    assert b"connection: close" in head
    assert json.loads(body)["type"] == "request-too-slow"


@pytest.mark.parametrize("begin", ["GET / HTTP/1.1\r\nx: ", "POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n", "\r\n"])
async def test_one_byte_now_and_then_does_not_buy_time(begin: str) -> None:
    drip = b"\r\n" if begin == "\r\n" else b"x"
    async with served(echo, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        start = time.monotonic()
        await line.say(begin)
        while not line.reader.at_eof():
            assert time.monotonic() - start < 5
            try:
                await line.say(drip)
                line.reader._buffer.clear()  # type: ignore[attr-defined]
            except ConnectionError:
                break
            await asyncio.sleep(0.02)


async def test_a_dripping_second_request_is_closed_too() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        await line.say("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert status_of(await line.until(b"\r\n\r\n")) == 200
        await line.say("GET / HTTP/1.1\r\n")
        assert status_of(await line.all()) == 408


async def test_many_requests_on_one_connection_outlive_the_deadline() -> None:
    async with served(echo, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        start = time.monotonic()
        while time.monotonic() - start < 3 * SHORT_MS / 1000:
            await line.say("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert status_of(await line.until(b"\r\n\r\n")) == 200
            await asyncio.sleep(0.03)


async def test_a_slow_answer_is_no_slow_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(3 * SHORT_MS / 1000)
        await PlainTextResponse("late")(scope, receive, send)

    async with served(slow, request_timeout_ms=SHORT_MS) as port, line_to(port) as line:
        await line.say("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert status_of(await line.all()) == 200


async def test_a_client_that_does_not_take_its_answer_is_cut() -> None:
    async with served(flood, request_timeout_ms=SHORT_MS) as port, line_to(port, read_limit=1024) as line:
        await line.say("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await line.until(b"\r\n")

        async def is_cut() -> bool:
            try:
                await line.say(b"\r\n")
            except ConnectionError:
                return True
            return False

        await until(is_cut)


async def test_what_is_not_http_gets_a_problem() -> None:
    async with served(echo) as port, line_to(port) as line:
        await line.say("\x17\x03\x01 hello\r\n\r\n")
        head, body = (await line.all()).split(b"\r\n\r\n")
    assert status_of(head) == 400
    assert json.loads(body)["type"] == "bad-request"


async def test_a_forwarded_address_is_not_believed() -> None:
    async def who(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["client"][0])(scope, receive, send)

    async with served(who) as port, line_to(port) as line:
        await line.say("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.7\r\nconnection: close\r\n\r\n")
        assert (await line.all()).endswith(b"127.0.0.1")
