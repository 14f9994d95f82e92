"""The limits of request bodies, of each one and of their sum."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from routebook.http_api.middleware import MAX_BODIES_IN_MEMORY, BodyMiddleware
from routebook.settings import LiveSettings, load
from tests.http_api.ports import served

LIMIT = 1024


async def show_type_and_size(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    text = f"{request.headers.get('content-type')} {len(await request.body())}"
    await PlainTextResponse(text)(scope, receive, send)


def middleware() -> BodyMiddleware:
    loaded = load({"max_body_bytes": str(LIMIT)}, {}, None)
    return BodyMiddleware(show_type_and_size, LiveSettings(loaded))


async def in_parts(size: int, *, pause_after: int | None = None) -> AsyncIterator[bytes]:
    for number in range(size // 128):
        if number == pause_after:
            await asyncio.Event().wait()
        yield b"x" * 128


async def put(port: int, content: bytes | AsyncIterator[bytes]) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.put(f"http://127.0.0.1:{port}/", content=content)


async def test_a_body_within_the_limit_is_passed_on_as_json() -> None:
    async with served(middleware()) as port:
        answer = await put(port, b"x" * LIMIT)
    assert answer.text == f"application/json {LIMIT}"


async def test_a_body_with_too_large_a_content_length_is_refused() -> None:
    async with served(middleware()) as port:
        answer = await put(port, b"x" * (LIMIT + 1))
    assert answer.status_code == 413
    assert answer.json()["type"] == "body-too-large"
    assert answer.headers["connection"] == "close"


async def test_a_chunked_body_above_the_limit_is_refused() -> None:
    async with served(middleware()) as port:
        answer = await put(port, in_parts(2 * LIMIT))
    assert answer.status_code == 413


async def test_an_enormous_content_length_is_refused() -> None:
    async with served(middleware()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999999\r\n\r\n")
        answer = await reader.read()
        writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 4")


async def test_the_sum_of_all_bodies_is_limited() -> None:
    async with served(middleware()) as port:
        waiting = [asyncio.create_task(put(port, in_parts(LIMIT, pause_after=7))) for _ in range(MAX_BODIES_IN_MEMORY)]
        await asyncio.sleep(0.1)
        answers = [await put(port, in_parts(LIMIT)) for _ in range(1)]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        after = await put(port, b"x")
    assert [answer.status_code for answer in answers] == [503]
    assert json.loads(answers[0].content)["type"] == "busy"
    assert after.status_code == 200
