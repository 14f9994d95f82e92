"""The load of the proof sees what it must see: else its zeros would mean nothing. Runs without a cluster."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable

import pytest

from routebook.protocol.command import Request, ResponseCode
from routebook.protocol.connection import Connection
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Kind, Plan, Record, Stretch
from tests.support.waiting import until

BROKER = "192.0.2.1:10911"
PLAN = Plan(clients_of_each_kind=1, lookups_per_second=100, brokers=0, register_period_s=5)
Answer = Callable[[Connection, Request], bytes | None]
"""None: the connection is closed instead."""


def route(wire: Connection, request: Request) -> bytes:
    name = (request.ext or {})["topic"]
    body = {"brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": BROKER}}], "queueDatas": [{"brokerName": name}]}
    return wire.answer(request, ResponseCode.SUCCESS, body=json.dumps(body).encode())


def success(body: bytes) -> Answer:
    return lambda wire, request: wire.answer(request, ResponseCode.SUCCESS, body=body)


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
    record, enough = Record(), asyncio.Event()
    stretch = Stretch(record, PLAN)
    client = LoadClient("one", kind, [server.address], {"a": BROKER}, record)
    running = asyncio.create_task(client.run(0.01, enough))
    async with asyncio.timeout(5):
        while record.answered[kind] < 4:
            await asyncio.sleep(0.01)
        enough.set()
        await running
    return stretch


@pytest.fixture
async def healthy() -> AsyncIterator[NameServer]:
    async with NameServer(route) as server:
        yield server


async def test_answers_of_a_healthy_fleet_are_no_failures(healthy: NameServer) -> None:
    seen = (await after_some_lookups(healthy)).end()

    assert (seen.failures, seen.blanks, seen.lost, seen.moves) == ([], [], [], 0)
    assert seen.answered["follows"] >= 4


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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"brokerDatas": null, "queueDatas": null}',
        b'{"brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "192.0.2.1:10911"}}], "queueDatas": []}',
    ],
)
async def test_an_answer_that_is_no_route_is_a_blank(body: bytes) -> None:
    async with NameServer(success(body)) as server:
        seen = (await after_some_lookups(server)).end()

    assert len(seen.blanks) >= 4


async def test_a_stretch_ends_when_what_began_in_it_has() -> None:
    record, enough = Record(), asyncio.Event()
    async with NameServer(close) as server:
        stretch, running = Stretch(record, PLAN), await failing_client(server, record, enough)
        ending = asyncio.create_task(asyncio.to_thread(stretch.end))
        await asyncio.sleep(0.5)
        assert not ending.done()
        server.answers = [route]
        seen = await ending
        enough.set()
        await running

    assert seen.failed_first("retries") == 1
    assert seen.most_tries_failed >= 2
    assert seen.lost == []


async def test_a_lookup_whose_patience_ends_after_the_stretch_is_lost_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kubernetes.load.client.PATIENCE_S", 1.0)
    record, enough = Record(), asyncio.Event()
    async with NameServer(close) as server:
        stretch, running = Stretch(record, PLAN), await failing_client(server, record, enough)
        enough.set()
        seen = await asyncio.to_thread(stretch.end)
        await running

    assert seen.seconds < 1
    assert [one.who for one in seen.lost] == ["one"]


async def failing_client(server: NameServer, record: Record, enough: asyncio.Event) -> asyncio.Task[None]:
    client = LoadClient("one", "retries", [server.address], {"a": BROKER}, record)
    running = asyncio.create_task(client.run(0.01, enough))
    await until(lambda: record.failures)
    return running


async def test_a_client_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stumble(client: LoadClient, topic: str) -> None:
        raise ZeroDivisionError(topic)

    def run_fleet(server: NameServer) -> None:
        with Fleet("127.0.0.1", [server.address], brokers=1, clients_of_each_kind=1):
            time.sleep(0.5)  # Within which its clients ask.

    monkeypatch.setattr(LoadClient, "_try", stumble)
    async with NameServer(success(b"")) as server:
        with pytest.raises(ExceptionGroup, match="died") as told:
            await asyncio.to_thread(run_fleet, server)

    assert told.group_contains(ZeroDivisionError)


async def test_only_one_kind_says_that_it_follows(healthy: NameServer) -> None:
    await after_some_lookups(healthy, "follows")
    (following,) = healthy.versions
    await after_some_lookups(healthy, "retries")

    assert min(healthy.versions) < following


async def test_a_fleet_asks_every_name_server_that_it_is_given() -> None:
    def run_fleet(servers: list[NameServer]) -> None:
        with Fleet("127.0.0.1", [one.address for one in servers], brokers=1, clients_of_each_kind=2):
            time.sleep(0.5)

    async with NameServer(success(b"")) as first, NameServer(success(b"")) as second:
        await asyncio.to_thread(run_fleet, [first, second])

    assert all(len(server.versions) == 2 for server in (first, second)), "a client of each kind"
