"""The watch: what happens, what was missed, and how it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from routebook.http_api.watch_streams import MAX_SINGLE_EVENTS, EventId, Watch, WatchRequest
from routebook.model.names import Caller
from routebook.store.history import write_baseline
from routebook.store.namespace import Namespace
from routebook.store.recovery import begin_history
from routebook.store.workers import acquire_lease
from tests.http_api.conftest import Worker, running, seat
from tests.http_api.ports import PATIENCE_SECONDS, line_to
from tests.support.waiting import until


@dataclass(frozen=True)
class Event:
    name: str
    id: str | None
    data: dict[str, Any]

    @property
    def said(self) -> tuple[str, int, bool]:
        return self.data["topic"], self.data["version"], self.data["route"] is not None


class Stream:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id: str | None = None
        self._lines = answer.aiter_lines()

    async def next(self) -> Event | None:
        """None at the end of the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
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

    async def some(self, number: int) -> list[Event]:
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
        came, went = await stream.some(2)
        assert (came.said, went.said) == (("TopicA", 1, True), ("TopicA", 3, False))
        entry = (await worker.http.get("/v1/changes")).json()["changes"][0]
        assert (came.name, came.id) == ("route", entry["entry"])
        assert came.data["route"]["brokerDatas"][0]["brokerName"] == "broker-a"


async def test_a_topic_that_is_there_is_told_at_once(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        first = await stream.next()
        assert first is not None
        assert first.said == ("TopicA", 1, True)
        assert first.id is not None


async def test_a_watch_of_all_hears_of_every_topic(worker: Worker) -> None:
    async with watching(worker) as stream:
        await subscribed(worker)
        await worker.put_broker(topics={"A": {}, "B": {}})
        first, second = await stream.some(2)
        assert (first.said, second.said) == (("A", 1, True), ("B", 1, True))
        # Only behind the last of them has everything of this version been heard.
        assert (first.id, second.id is None) == (None, False)


async def test_it_resumes_without_a_gap(worker: Worker) -> None:
    async with watching(worker, "TopicA") as stream:
        await subscribed(worker)
        await worker.put_broker()
        await stream.next()
        seen = stream.last_id
    await worker.put_broker("broker-b", address="127.0.0.20:10911")
    await worker.http.put("/v1/kv/any/key", json={"value": "1"})
    await worker.http.delete("/v1/topics/TopicA")
    async with watching(worker, "TopicA", seen) as stream:
        missed = await stream.some(3)
        await worker.put_broker()
        missed += await stream.some(1)
    # Version 3 is a key-value, and the deletion is an entry for each broker. All tell of the route as it is now.
    assert [event.said for event in missed] == [
        ("TopicA", 2, False),
        ("TopicA", 4, False),
        ("TopicA", 5, False),
        ("TopicA", 6, True),
    ]


async def test_of_very_much_only_the_newest_is_told(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        seen = stream.last_id
    for count in range(MAX_SINGLE_EVENTS + 1):
        await worker.put_broker(topics={"TopicA": {"read_queues": count}})
    async with watching(worker, "TopicA", seen) as stream:
        event = await stream.next()
        assert event is not None
        assert event.said == ("TopicA", MAX_SINGLE_EVENTS + 2, True)
        assert event.data["route"]["queueDatas"][0]["readQueueNums"] == MAX_SINGLE_EVENTS


async def test_resuming_where_nothing_was_missed_says_nothing(worker: Worker) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA") as stream:
        await stream.next()
        seen = stream.last_id
    async with watching(worker, "TopicA", seen) as stream:
        await subscribed(worker)
        await worker.http.delete("/v1/topics/TopicA")
        event = await stream.next()
        assert event is not None
        assert event.said == ("TopicA", 2, False)


async def test_one_resumes_on_another_worker(worker: Worker, namespace: Namespace) -> None:
    async with watching(worker) as stream:
        await subscribed(worker)
        await worker.put_broker(topics={"A": {}, "B": {}})
        await stream.some(2)
        seen = stream.last_id
    await worker.http.delete(seat())
    async with running(namespace) as other, watching(other, None, seen) as stream:
        # The entry of a group that is gone does not name its topics; the history before does.
        assert [event.said for event in await stream.some(2)] == [("A", 2, False), ("B", 2, False)]


async def test_all_settings_and_order_changes_in_between_are_told(worker: Worker) -> None:
    await worker.put_broker(topics={"A": {}, "B": {}})
    async with watching(worker, "A") as stream:
        await stream.next()
        seen = stream.last_id
    await worker.http.put("/v1/kv/ORDER_TOPIC_CONFIG/B", json={"value": "broker-a:8"})
    await worker.http.put("/v1/settings/order_message_enable", json={"value": True})
    async with watching(worker, None, seen) as stream:
        assert [event.said[:2] for event in await stream.some(3)] == [("B", 2), ("A", 3), ("B", 3)]


@pytest.mark.parametrize("last_seen", ["1-1", "nonsense", "1763475600000-999999", "0-0", "5-0"])
async def test_an_entry_that_is_not_in_the_history_begins_with_reset(worker: Worker, last_seen: str) -> None:
    await worker.put_broker()
    async with watching(worker, "TopicA", last_seen) as stream:
        reset, now = await stream.some(2)
        assert (reset.name, reset.data["version"]) == ("reset", 1)
        assert reset.data["history"] == worker.registry.replica.history
        assert now.said == ("TopicA", 1, True)


async def test_a_trimmed_entry_begins_with_reset(worker: Worker) -> None:
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
        assert event.said == ("TopicA", 2, False)


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
    watch = Watch(worker.registry, worker.app._watchers, WatchRequest("A", resumes=False), keep_alive_seconds=0.02)
    async with aclosing(watch.stream()) as stream:  # type: ignore[type-var]
        opening, comment = await anext(stream), await anext(stream)
    assert opening.startswith(b"retry:")
    assert comment.startswith(b":")


async def test_a_watcher_that_does_not_keep_up_is_let_go(worker: Worker) -> None:
    watch = Watch(worker.registry, worker.app._watchers, WatchRequest("A", resumes=False))
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
        async with line_to(worker.port) as line:
            await line.say("GET /v1/watch?topic=TopicA HTTP/1.1\r\nhost: x\r\n\r\n")
            await line.until(b"event: route")
            worker.app.stop()
            # The whole chunked body: it ended in order, and was not cut.
            assert (await line.until(b"\r\n0\r\n\r\n")).endswith(b"0\r\n\r\n")
        late = await worker.http.get("/v1/watch")
        assert (late.status_code, late.json()["type"]) == (503, "busy")


async def test_there_are_only_so_many(worker: Worker) -> None:
    worker.app._watchers._max_watches = 1
    async with watching(worker, "A"):
        await subscribed(worker)
        more = await worker.http.get("/v1/watch")
        assert (more.status_code, more.json()["type"]) == (503, "busy")


def test_ids_are_ordered_like_the_history() -> None:
    assert EventId(2, 3) > EventId(1, 2)


async def test_a_baseline_in_between_tells_nothing_and_is_resumed_across(worker: Worker) -> None:
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
        assert event.said[0] == "B"
        assert event.said[1] > 6
