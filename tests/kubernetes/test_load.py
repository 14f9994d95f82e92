"""The load of the proof sees what it must see: else its zeros would mean nothing. Runs without a cluster."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

from routebook.wire.codes import ResponseCode
from routebook.wire.command import Request
from routebook.wire.connection import Connection
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.record import Kind, Record, Stretch

BROKER = "192.0.2.1:10911"
Answer = Callable[[Connection, Request], bytes | None]
"""None: the connection is closed instead."""


def route(wire: Connection, request: Request) -> bytes:
    name = (request.ext or {})["topic"]
    body = {"brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": BROKER}}], "queueDatas": []}
    return wire.answer(request, ResponseCode.SUCCESS, body=json.dumps(body).encode())


def no_such_topic(wire: Connection, request: Request) -> bytes:
    return wire.answer(request, ResponseCode.TOPIC_NOT_EXIST, remark="no route")


def go_away(wire: Connection, request: Request) -> bytes:
    return wire.answer(request, ResponseCode.GO_AWAY, remark="go away")


def close(wire: Connection, request: Request) -> None:
    return None


class NameServer:
    """Answers as it is told: one after the other, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.versions: set[int] = set()
        self.address = ""

    async def __aenter__(self) -> "NameServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Connection()
        # Who hangs up does so without a farewell.
        with contextlib.suppress(ConnectionResetError):
            await self._answer_all(wire, reader, writer)
        writer.close()

    async def _answer_all(self, wire: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            for event in wire.receive(data):
                assert isinstance(event, Request)
                self.versions.add(event.version)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                said = answer(wire, event)
                if said is None:
                    writer.transport.abort()
                    return
                writer.write(said)


async def after_some_lookups(server: NameServer, kind: Kind = "follows") -> Stretch:
    record = Record()
    stretch = Stretch(record)
    client = LoadClient("one", kind, [server.address], {"a": BROKER}, record)
    running = asyncio.create_task(client.run(0.01))
    async with asyncio.timeout(5):
        while record.lookups[kind] < 4:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return stretch


@pytest.fixture
async def healthy() -> AsyncIterator[NameServer]:
    async with NameServer(route) as server:
        yield server


async def test_answers_of_a_healthy_fleet_are_no_failures(healthy: NameServer) -> None:
    seen = (await after_some_lookups(healthy)).end()

    assert (seen.failures, seen.blanks, seen.lost, seen.moves) == ([], [], [], 0)
    assert seen.lookups["follows"] >= 4


async def test_a_connection_that_ends_under_a_lookup_is_a_failed_first_try() -> None:
    async with NameServer(route, close, route) as server:
        seen = (await after_some_lookups(server, "retries")).end()

    assert seen.failed_first("retries") == 1
    assert seen.failed_first("follows") == 0
    assert seen.most_tries_failed == 1
    assert [one.how for one in seen.failures] == ["lost"]
    assert seen.lost == []


async def test_a_lookup_that_fails_twice_is_told_from_one_that_fails_once() -> None:
    async with NameServer(close, close, route) as server:
        seen = (await after_some_lookups(server)).end()

    assert seen.failed_first("follows") == 1
    assert seen.most_tries_failed == 2


async def test_a_wish_to_go_away_is_followed_and_is_no_failure() -> None:
    async with NameServer(route, go_away, route) as server:
        seen = (await after_some_lookups(server)).end()

    assert seen.failures == []
    assert seen.moves == 1


async def test_being_sent_away_twice_is_a_failure() -> None:
    async with NameServer(go_away, go_away, route) as server:
        seen = (await after_some_lookups(server)).end()

    assert [one.how for one in seen.failures] == ["1500"]


async def test_a_missing_topic_and_another_broker_are_blanks() -> None:
    async with NameServer(no_such_topic) as server:
        missing = (await after_some_lookups(server)).end()
    async with NameServer(lambda wire, request: route(wire, request).replace(b"192.0.2.1", b"192.0.2.2")) as server:
        another = (await after_some_lookups(server)).end()

    assert "no such topic" in missing.blanks[0].said
    assert "192.0.2.2" in another.blanks[0].said


async def test_only_one_kind_says_that_it_follows(healthy: NameServer) -> None:
    await after_some_lookups(healthy, "follows")
    (following,) = healthy.versions
    await after_some_lookups(healthy, "retries")

    assert min(healthy.versions) < following
