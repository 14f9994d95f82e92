"""The load's clients detect failures and wrong answers. These tests need no cluster."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable

import pytest

from routebook.protocol.connection import Connection
from routebook.protocol.frame import Request, ResponseCode
from tests.kubernetes.load.client import LoadClient
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Kind, OpenWindow, Plan, Record
from tests.support.waiting import until

BROKER = "192.0.2.1:10911"
PLAN = Plan(clients_of_each_kind=1, lookups_per_second=100, brokers=0, register_period_s=5)
Answer = Callable[[Connection, Request], bytes | None]
"""Returns the response, or None to close the connection."""


def route(connection: Connection, request: Request) -> bytes:
    name = (request.ext or {})["topic"]
    body = {"brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": BROKER}}], "queueDatas": [{"brokerName": name}]}
    return connection.answer(request, ResponseCode.SUCCESS, body=json.dumps(body).encode())


def success(body: bytes) -> Answer:
    return lambda connection, request: connection.answer(request, ResponseCode.SUCCESS, body=body)


def no_such_topic(connection: Connection, request: Request) -> bytes:
    return connection.answer(request, ResponseCode.TOPIC_NOT_EXIST, remark="no route")


def go_away(connection: Connection, request: Request) -> bytes:
    return connection.answer(request, ResponseCode.GO_AWAY, remark="go away")


def close(connection: Connection, request: Request) -> None:
    return None


class NameServer:
    """Gives one answer after the other, and repeats the last one."""

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
        connection = Connection()
        # Clients reset their connection when they give up.
        with contextlib.suppress(ConnectionResetError):
            await self._answer_all(connection, reader, writer)
        writer.close()

    async def _answer_all(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(4096):
            for event in connection.receive(data):
                assert isinstance(event, Request)
                self.versions.add(event.version)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                response = answer(connection, event)
                if response is None:
                    writer.transport.abort()
                    return
                writer.write(response)


async def window_with_lookups(server: NameServer, kind: Kind = "go_away") -> OpenWindow:
    record, stop = Record(), asyncio.Event()
    open_window = OpenWindow(record, PLAN)
    client = LoadClient("one", kind, [server.address], {"a": BROKER}, record)
    running = asyncio.create_task(client.run(0.01, stop))
    async with asyncio.timeout(5):
        while record.answered[kind] < 4:
            await asyncio.sleep(0.01)
        stop.set()
        await running
    return open_window


@pytest.fixture
async def healthy() -> AsyncIterator[NameServer]:
    async with NameServer(route) as server:
        yield server


async def test_correct_answers_are_not_failures(healthy: NameServer) -> None:
    window = (await window_with_lookups(healthy)).close()

    assert (window.failures, window.wrong_answers, window.lost, window.moves) == ([], [], [], 0)
    assert window.answered["go_away"] >= 4


async def test_a_connection_closed_during_a_lookup_is_a_failed_first_try() -> None:
    async with NameServer(route, close, route) as server:
        window = (await window_with_lookups(server, "legacy")).close()

    assert window.failed_first_tries("legacy") == 1
    assert window.failed_first_tries("go_away") == 0
    assert window.most_failed_tries == 1
    assert [failure.reason for failure in window.failures] == ["lost"]
    assert window.lost == []


async def test_a_second_failed_try_is_distinguished_from_the_first() -> None:
    async with NameServer(close, close, route) as server:
        window = (await window_with_lookups(server)).close()

    assert window.failed_first_tries("go_away") == 1
    assert window.most_failed_tries == 2


async def test_following_go_away_is_not_a_failure() -> None:
    async with NameServer(route, go_away, route) as server:
        window = (await window_with_lookups(server)).close()

    assert window.failures == []
    assert window.moves == 1


async def test_a_second_go_away_is_a_failure() -> None:
    async with NameServer(go_away, go_away, route) as server:
        window = (await window_with_lookups(server)).close()

    assert [failure.reason for failure in window.failures] == ["1500"]


async def test_a_missing_topic_and_another_broker_are_wrong_answers() -> None:
    async with NameServer(no_such_topic) as server:
        missing = (await window_with_lookups(server)).close()
    async with NameServer(
        lambda connection, request: route(connection, request).replace(b"192.0.2.1", b"192.0.2.2")
    ) as server:
        another = (await window_with_lookups(server)).close()

    assert "no such topic" in missing.wrong_answers[0].detail
    assert "192.0.2.2" in another.wrong_answers[0].detail


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
async def test_a_body_that_is_no_route_is_a_wrong_answer(body: bytes) -> None:
    async with NameServer(success(body)) as server:
        window = (await window_with_lookups(server)).close()

    assert len(window.wrong_answers) >= 4


async def test_closing_a_window_waits_for_its_lookups() -> None:
    record, stop = Record(), asyncio.Event()
    async with NameServer(close) as server:
        open_window, running = OpenWindow(record, PLAN), await failing_client(server, record, stop)
        ending = asyncio.create_task(asyncio.to_thread(open_window.close))
        await asyncio.sleep(0.5)
        assert not ending.done()
        server.answers = [route]
        window = await ending
        stop.set()
        await running

    assert window.failed_first_tries("legacy") == 1
    assert window.most_failed_tries >= 2
    assert window.lost == []


async def test_a_lookup_given_up_after_the_window_counts_as_lost_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kubernetes.load.client.PATIENCE_S", 1.0)
    record, stop = Record(), asyncio.Event()
    async with NameServer(close) as server:
        open_window, running = OpenWindow(record, PLAN), await failing_client(server, record, stop)
        stop.set()
        window = await asyncio.to_thread(open_window.close)
        await running

    assert window.seconds < 1
    assert [failure.client for failure in window.lost] == ["one"]


async def failing_client(server: NameServer, record: Record, stop: asyncio.Event) -> asyncio.Task[None]:
    client = LoadClient("one", "legacy", [server.address], {"a": BROKER}, record)
    running = asyncio.create_task(client.run(0.01, stop))
    await until(lambda: record.failures)
    return running


async def test_the_error_of_a_dead_client_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(client: LoadClient, topic: str) -> None:
        raise ZeroDivisionError(topic)

    def run_fleet(server: NameServer) -> None:
        with Fleet("127.0.0.1", [server.address], brokers=1, clients_of_each_kind=1):
            time.sleep(0.5)  # long enough for its clients to look up

    monkeypatch.setattr(LoadClient, "_try", fail)
    async with NameServer(success(b"")) as server:
        with pytest.raises(ExceptionGroup, match="died") as raised:
            await asyncio.to_thread(run_fleet, server)

    assert raised.group_contains(ZeroDivisionError)


async def test_only_one_kind_of_client_claims_a_go_away_release(healthy: NameServer) -> None:
    await window_with_lookups(healthy, "go_away")
    (go_away_version,) = healthy.versions
    await window_with_lookups(healthy, "legacy")

    assert min(healthy.versions) < go_away_version


async def test_a_fleet_uses_every_given_name_server() -> None:
    def run_fleet(servers: list[NameServer]) -> None:
        with Fleet("127.0.0.1", [server.address for server in servers], brokers=1, clients_of_each_kind=2):
            time.sleep(0.5)

    async with NameServer(success(b"")) as first, NameServer(success(b"")) as second:
        await asyncio.to_thread(run_fleet, [first, second])

    assert all(len(server.versions) == 2 for server in (first, second)), "both kinds of clients"
