"""Watches: live events, missed events after a reconnection, and the end of a stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from routebook.http_api.watch_streams import MAX_SINGLE_EVENTS, EventId, Watch, WatchRequest
from routebook.listeners.peers import Peer, PeerLimits
from routebook.model.names import Caller
from routebook.store.history import write_baseline
from routebook.store.namespace import Namespace
from routebook.store.recovery import begin_history
from routebook.store.workers import acquire_lease
from tests.http_api.conftest import Worker, running, seat
from tests.http_api.ports import TIMEOUT_SECONDS, raw_connection
from tests.support.waiting import until

A_PEER = Peer("192.0.2.1", PeerLimits())


@dataclass(frozen=True)
class Event:
    name: str
    id: str | None
    data: dict[str, Any]

    @property
    def summary(self) -> tuple[str, int, bool]:
        return self.data["topic"], self.data["version"], self.data["route"] is not None


class Stream:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id: str | None = None
        self._lines = answer.aiter_lines()

    async def next(self) -> Event | None:
        """The next event, or None at the end of the stream."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            fields: dict[str, str] = {}
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif not line and "data" in fields:
                    self.last_id = fields.get("id", self.last_id)
                    return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                elif not line:
                    fields = {}
        return None

    async def take(self, number: int) -> list[Event]:
        events = [await self.next() for _ in range(number)]
        assert None not in events
        return [event for event in events if event is not None]


@asynccontextmanager
async def watching(worker: Worker, topic: str | None = None, last_seen: str | None = None) -> AsyncIterator[Stream]:
    before = watchers(worker)
    headers = {"last-event-id": last_seen} if last_seen is not None else {}
    params = {"topic": topic} if topic else {}
    async with worker.http.stream("GET", "/v1/watch", params=params, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)
    await until(lambda: watchers(worker) == before)


def watchers(worker: Worker) -> float:
    return worker.metrics.registry.get_sample_value("routebook_watchers") or 0.0


async def subscribed(worker: Worker) -> None:
    await until(lambda: len(worker.registry.replica.subscriptions) == 1)


async def test_changes_of_a_topic_arrive_as_they_happen(worker: Worker) -> None:
    async with watching(worker, "TopicA") as stream:
        await subscribed(worker)
        await worker.put_broker(topics={"TopicA": {}, "Other": {}})
        await worker.put_broker("broker-b", address="127.0.0.20:10911", topics={"Other": {}})
        await worker.http.delete(seat())
        added, removed = await stream.take(2)
        assert (added.summary, removed.summary) == (("TopicA", 1, True), ("TopicA", 3, False))
        entry = (await worker.http.get("/v1/changes")).json()["changes"][0]
        assert (added.name, added.id) == ("route", entry["entry"])
        assert added.data["route"]["brokerDatas"][0]["brokerName"] == "broker-a"


async def test_the_watch_of_an_existing_topic_begins_with_its_route(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        first = await stream.next()
        assert first is not None
        assert first.summary == ("TopicA", 1, True)
        assert first.id is not None


async def test_a_watch_without_a_topic_has_events_of_all_topics(worker: Worker) -> None:
    async with watching(worker) as stream:
        await subscribed(worker)
        await worker.put_broker(topics={"A": {}, "B": {}})
        first, second = await stream.take(2)
        assert (first.summary, second.summary) == (("A", 1, True), ("B", 1, True))
        # A client can resume only after the last event of a version, so only that one has an id.
        assert (first.id, second.id is None) == (None, False)


async def test_a_watch_resumes_without_a_gap(worker: Worker) -> None:
    async with watching(worker, "TopicA") as stream:
        await subscribed(worker)
        await worker.put_broker()
        await stream.next()
        seen = stream.last_id
    await worker.put_broker("broker-b", address="127.0.0.20:10911")
    await worker.http.put("/v1/kv/any/key", json={"value": "1"})
    await worker.http.delete("/v1/topics/TopicA")
    async with watching(worker, "TopicA", seen) as stream:
        missed = await stream.take(3)
        await worker.put_broker()
        missed += await stream.take(1)
    # Version 3 is a key-value, and the deletion has one entry per broker. All events have the current route.
    assert [event.summary for event in missed] == [
        ("TopicA", 2, False),
        ("TopicA", 4, False),
        ("TopicA", 5, False),
        ("TopicA", 6, True),
    ]


async def test_after_many_changes_only_the_newest_of_a_topic_is_sent(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        seen = stream.last_id
    for count in range(MAX_SINGLE_EVENTS + 1):
        await worker.put_broker(topics={"TopicA": {"read_queues": count}})
    async with watching(worker, "TopicA", seen) as stream:
        event = await stream.next()
        assert event is not None
        assert event.summary == ("TopicA", MAX_SINGLE_EVENTS + 2, True)
        assert event.data["route"]["queueDatas"][0]["readQueueNums"] == MAX_SINGLE_EVENTS


async def test_resuming_without_missed_changes_sends_no_event(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        seen = stream.last_id
    async with watching(worker, "TopicA", seen) as stream:
        await subscribed(worker)
        await worker.http.delete("/v1/topics/TopicA")
        event = await stream.next()
        assert event is not None
        assert event.summary == ("TopicA", 2, False)


async def test_a_watch_resumes_on_another_worker(worker: Worker, namespace: Namespace) -> None:
    async with watching(worker) as stream:
        await subscribed(worker)
        await worker.put_broker(topics={"A": {}, "B": {}})
        await stream.take(2)
        seen = stream.last_id
    await worker.http.delete(seat())
    async with running(namespace) as other, watching(other, None, seen) as stream:
        # The entry of a removed group does not name its topics; earlier entries do.
        assert [event.summary for event in await stream.take(2)] == [("A", 2, False), ("B", 2, False)]


async def test_missed_changes_of_settings_and_order_configuration_are_sent(worker: Worker) -> None:
    await worker.put_broker(topics={"A": {}, "B": {}})
    async with watching(worker, "A") as stream:
        await stream.next()
        seen = stream.last_id
    await worker.http.put("/v1/kv/ORDER_TOPIC_CONFIG/B", json={"value": "broker-a:8"})
    await worker.http.put("/v1/settings/order_message_enable", json={"value": True})
    async with watching(worker, None, seen) as stream:
        assert [event.summary[:2] for event in await stream.take(3)] == [("B", 2), ("A", 3), ("B", 3)]


@pytest.mark.parametrize("last_seen", ["1-1", "nonsense", "1763475600000-999999", "0-0", "5-0"])
async def test_resuming_after_an_unknown_entry_begins_with_reset(worker: Worker, last_seen: str) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA", last_seen) as stream:
        reset, now = await stream.take(2)
        assert (reset.name, reset.data["version"]) == ("reset", 1)
        assert reset.data["history"] == worker.registry.replica.history
        assert now.summary == ("TopicA", 1, True)


async def test_resuming_after_a_trimmed_entry_begins_with_reset(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        seen = stream.last_id
    await worker.put_broker("broker-b", address="127.0.0.20:10911")
    namespace = worker.registry._namespace
    await namespace.client.call("XTRIM", namespace.keys.changes, "MAXLEN", "=", 1)
    async with watching(worker, "TopicA", seen) as stream:
        event = await stream.next()
        assert event is not None
        assert event.name == "reset"


async def test_a_reset_can_be_resumed_from(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, None, "1-1") as stream:
        await stream.next()
        seen = stream.last_id
    assert seen is not None
    await worker.http.delete("/v1/topics/TopicA")
    async with watching(worker, None, seen) as stream:
        event = await stream.next()
        assert event is not None
        assert event.summary == ("TopicA", 2, False)


async def test_a_new_history_is_a_reset(worker: Worker, namespace: Namespace) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        await subscribed(worker)
        before = worker.registry.replica.history
        await begin_history(namespace, history=before)
        await until(lambda: worker.registry.replica.history != before)
        await worker.put_broker("broker-b", address="127.0.0.20:10911")
        event = await stream.next()
        while event is not None and event.name != "reset":
            event = await stream.next()
        assert event is not None
        assert event.data["history"] == worker.registry.replica.history


async def test_keep_alive_comments_are_sent(worker: Worker) -> None:
    watch = Watch(
        worker.registry, worker.app._watchers, A_PEER, WatchRequest("A", resumes=False), keep_alive_seconds=0.02
    )
    async with aclosing(watch.stream()) as stream:  # type: ignore[type-var]
        opening, comment = await anext(stream), await anext(stream)
    assert opening.startswith(b"retry:")
    assert comment.startswith(b":")


async def test_a_watch_that_does_not_keep_up_ends(worker: Worker) -> None:
    watch = Watch(worker.registry, worker.app._watchers, A_PEER, WatchRequest("A", resumes=False))
    async with aclosing(watch.stream()) as stream:  # type: ignore[type-var]
        await anext(stream)
        for version in range(1, 1002):
            worker.registry.replica.subscriptions.publish(["A"], 1, version)
        parts = [part async for part in stream]
    assert parts[0].startswith(b"event: route")
    assert len(parts) == 1000


async def test_a_watch_ends_when_the_worker_stops(namespace: Namespace) -> None:
    async with running(namespace) as worker:
        await worker.put_broker()
        async with raw_connection(worker.port) as connection:
            await connection.send("GET /v1/watch?topic=TopicA HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await connection.read_until(b"event: route")
            worker.app.stop()
            # The chunked body has its end marker, so the connection was not aborted.
            assert (await connection.read_until(b"\r\n0\r\n\r\n")).endswith(b"0\r\n\r\n")
        late = await worker.http.get("/v1/watch")
        assert (late.status_code, late.json()["type"]) == (503, "busy")


@pytest.mark.parametrize("setting", ["max_watches", "max_watches_per_address"])
async def test_the_number_of_watches_is_limited(namespace: Namespace, setting: str) -> None:
    async with running(namespace, **{setting: "1"}) as worker:
        async with watching(worker, "A"):
            await subscribed(worker)
            more = await worker.http.get("/v1/watch")
            assert (more.status_code, more.json()["type"]) == (503, "busy")
            assert f"{setting} is 1" in more.json()["detail"]
        # The worker notices the end of a stream when it writes the next time.
        worker.registry.replica.subscriptions.publish(["A"], 1, 1)
        await until(lambda: watchers(worker) == 0)
        async with watching(worker, "A"):
            await subscribed(worker)


def test_event_ids_are_ordered_like_the_history() -> None:
    assert EventId(2, 3) > EventId(1, 2)


async def test_a_watch_resumes_across_a_baseline_without_events_for_it(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, None) as stream:
        await subscribed(worker)
        await worker.put_broker("broker-b", address="127.0.0.20:10911", topics={"B": {}})
        await stream.next()
        seen = stream.last_id
    namespace = worker.registry._namespace
    _, lease = await acquire_lease(namespace, "test", 60_000)
    async for _ in write_baseline(namespace, lease.whole, caller=Caller("test"), cause="daily"):
        pass
    await worker.http.delete("/v1/topics/B")
    async with watching(worker, None, seen) as stream:
        event = await stream.next()
        assert event is not None
        assert event.summary[0] == "B"
        assert event.summary[1] > 6
