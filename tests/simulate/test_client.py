"""Simulated clients and brokers use a name server like RocketMQ's own."""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from routebook.simulate.client import LateResponseError, ServerConnection, SimulatedClient
from routebook.simulate.records import Counts, Journal, Latencies
from tests.remoting_client.canned_server import CannedServer
from tests.support.peers import server_playing
from tests.support.waiting import until

ROUTE = '{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


@asynccontextmanager
async def running_client(
    *addresses: str, topics: tuple[str, ...] = ("TopicA",), follows_go_away: bool = True
) -> AsyncIterator[tuple[Counts, io.StringIO]]:
    counts, journal = Counts(), io.StringIO()
    client = SimulatedClient(
        "one",
        topics,
        addresses,
        rng=random.Random(1),
        journal=Journal(journal),
        counts=counts,
        follows_go_away=follows_go_away,
    )
    running = asyncio.create_task(client.run(0, 0.02))
    try:
        yield counts, journal
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


async def test_a_client_looks_up_its_topics_one_after_the_other() -> None:
    server = CannedServer(routes={"TopicA": ROUTE})
    async with (
        server_playing(server.play) as address,
        running_client(address, topics=("TopicA", "TopicB")) as (counts, journal),
    ):
        await until(lambda: counts.lookups >= 5)
    assert [ext["topic"] for _, ext in server.requests[:4]] == ["TopicA", "TopicB", "TopicA", "TopicB"]
    assert counts.found >= 2
    assert counts.not_found >= 2
    assert counts.failed == 0
    (event,) = [json.loads(line) for line in journal.getvalue().splitlines()]
    assert (event["event"], event["topic"], event["server"]) == ("not-found", "TopicB", address)


async def test_a_client_records_when_a_topic_is_missing_and_found_again() -> None:
    server = CannedServer()
    async with server_playing(server.play) as address, running_client(address) as (counts, journal):
        await until(lambda: counts.not_found >= 2)
        server.routes["TopicA"] = ROUTE
        await until(lambda: counts.found >= 2)
    assert [json.loads(line)["event"] for line in journal.getvalue().splitlines()] == ["not-found", "found-again"]


async def test_a_client_changes_its_name_server_only_when_the_connection_is_lost() -> None:
    first, second = CannedServer(routes={"TopicA": ROUTE}), CannedServer(routes={"TopicA": ROUTE})
    async with (
        server_playing(first.play) as one,
        server_playing(second.play) as other,
        running_client(one, other) as (counts, _),
    ):
        await until(lambda: counts.found >= 5)
        assert counts.switches == 0
        assert not first.requests or not second.requests
    server = CannedServer(routes={"TopicA": ROUTE})
    async with server_playing(server.play) as there, running_client("127.0.0.1:1", "127.0.0.1:2", there) as (counts, _):
        await until(lambda: counts.found >= 3)
        # One lookup fails for each server that is down, and no lookup is retried.
        assert counts.failures["unreachable"] == counts.switches <= 2


@pytest.mark.parametrize("follows", [True, False])
async def test_a_request_is_repeated_once_after_go_away(follows: bool) -> None:
    server = CannedServer(refused={105: (1500, "please go away")})
    async with server_playing(server.play) as address, running_client(address, follows_go_away=follows) as (counts, _):
        await until(lambda: counts.failures["1500"] >= 2)
        requests, failed, retries = len(server.requests), counts.failures["1500"], counts.retries
    assert bool(retries) == follows
    assert requests >= failed * (2 if follows else 1)


async def test_a_late_response_closes_the_connection() -> None:
    server = CannedServer(silent={105})
    async with server_playing(server.play) as address:
        connection = ServerConnection(address)
        with pytest.raises(LateResponseError):
            await connection.request(105, {"topic": "TopicA"}, timeout_ms=50)
        assert not connection.is_open
        await connection.close()


def test_percentiles_are_within_three_per_cent() -> None:
    latencies = Latencies()
    assert latencies.percentile(0.5) == 0
    for ms in range(1, 1001):
        latencies.add(ms)
    for share in (0.1, 0.5, 0.99):
        assert 1000 * share <= latencies.percentile(share) <= 1000 * share * 1.03
    assert latencies.percentile(1) == latencies.longest_ms == 1000
