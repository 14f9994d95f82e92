"""The client library with real workers, one of which is killed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from routebook.client import (
    AsyncClient,
    Client,
    NotAllowedError,
    NotFoundError,
    Queues,
    RefusedError,
    RouteEvent,
    UnreachableError,
)
from tests.runtime.running import Running
from tests.support.ports import lasting_free_port
from tests.support.waiting import wait_until

ADDRESS = "127.0.0.11:10911"


def serve(store_url: str, namespace: str, folder: Path, *flags: str) -> Running:
    command = ("serve", "--redis-url", store_url, "--namespace", namespace, "--bind-address", "127.0.0.1", *flags)
    return Running(*command, folder=folder)


@pytest.fixture
def worker(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    with serve(store_url, namespace_name, tmp_path) as service:
        yield service


@pytest.fixture
def second(store_url: str, namespace_name: str, tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "second").mkdir()
    with serve(store_url, namespace_name, tmp_path / "second") as service:
        yield service


@asynccontextmanager
async def watching(names: AsyncClient, topic: str) -> AsyncIterator[asyncio.Queue[RouteEvent]]:
    events: asyncio.Queue[RouteEvent] = asyncio.Queue()

    async def watch() -> None:
        async for event in names.watch(topic):
            events.put_nowait(event)

    task = asyncio.create_task(watch())
    try:
        yield events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_registration_is_found_kept_alive_and_removed(worker: Running) -> None:
    topics = {"TopicA": Queues(4, 2), "TopicB": Queues(1, 1, perm=4)}
    with Client(worker.http) as names:
        with names.register("demo", "broker-a", ADDRESS, topics, timeout_ms=1_000) as registration:
            assert registration.result["status"] == "changed"
            found = names.lookup("TopicA")
            assert found.brokers["broker-a"].select_address() == ADDRESS
            assert found.queues["broker-a"] == Queues(4, 2)
            assert len(found.write_queues()) == 2
            assert found.version >= 1
            assert found.history
            assert not names.lookup("TopicB").write_queues()
            # Heartbeats keep it for much longer than its timeout.
            first = next(change for change in names.changes(broker="broker-a"))
            wait_until(lambda: names.lookup("TopicA").age_s < 5 and registration.last_error is None, "it is kept")
            assert first.kind
        with pytest.raises(NotFoundError) as caught:
            names.lookup("TopicA")
        assert caught.value.kind == "topic-not-found"
        kinds = [change.kind for change in names.changes(since=0)]
        assert "broker-removed" in kinds
        causes = {change.fields.get("cause") for change in names.changes(since=0, kinds=["broker-removed"])}
        assert "expired" not in causes


async def test_a_lost_registration_is_made_again(worker: Running) -> None:
    async with (
        AsyncClient(worker.http) as names,
        names.register("demo", "broker-a", ADDRESS, ["TopicA"], timeout_ms=1_000),
        asyncio.timeout(20),
    ):
        removed = await asyncio.to_thread(worker.delete, "/v1/clusters/demo/brokers/broker-a/0")
        assert removed.status_code == 200
        while True:
            try:
                await names.lookup("TopicA")
                break
            except NotFoundError:
                await asyncio.sleep(0.05)


async def test_a_watch_and_a_registration_survive_the_kill_of_their_worker(worker: Running, second: Running) -> None:
    async with (
        AsyncClient([worker.http, second.http]) as names,
        AsyncClient(second.http) as others,
        watching(names, "TopicA") as events,
        asyncio.timeout(40),
    ):
        async with names.register("demo", "broker-a", ADDRESS, {"TopicA": Queues(1, 1)}, timeout_ms=2_000) as kept:
            first = await events.get()
            assert first.route
            assert first.route.queues["broker-a"].write == 1
            await asyncio.to_thread(worker.kill)
            async with others.register("demo", "broker-b", "127.0.0.12:10911", {"TopicA": Queues(3, 3)}):
                while True:
                    event = await events.get()
                    if event.route and "broker-b" in event.route.queues:
                        break
                assert not event.is_reset
                assert set((await names.lookup("TopicA")).queues) == {"broker-a", "broker-b"}
                # Longer than the timeout: its heartbeats go to the other worker now.
                await asyncio.sleep(2.5)
                assert kept.last_error is None
                assert "broker-a" in (await others.lookup("TopicA")).queues
        while (event := await events.get()).route:
            pass
        assert event.topic == "TopicA"


async def test_followed_changes_come_once_and_in_order_across_workers(worker: Running, second: Running) -> None:
    async with AsyncClient([worker.http, second.http]) as names, asyncio.timeout(60):
        seen: list[int] = []
        followed = names.changes(since=0, follow=True)
        for number in range(1, 9):
            service = second if number > 4 else worker
            body = {"address": ADDRESS, "topics": {f"Topic-{at}": {} for at in range(number)}}
            answer = await asyncio.to_thread(service.put, "/v1/clusters/demo/brokers/broker-a/0", body)
            version = answer.json()["version"]
            while not seen or seen[-1] < version:
                seen.append((await anext(followed)).version)
            if number == 4:
                await asyncio.to_thread(worker.kill)
        assert seen == sorted(set(seen))


def test_without_the_service_the_known_route_is_given_with_its_age(worker: Running) -> None:
    worker.register()
    with Client(worker.http, retries=1) as names:
        known = names.lookup("TopicA")
        worker.kill()
        again = names.lookup("TopicA")
        assert again.is_fallback
        assert again.queues == known.queues
        assert again.age_s >= known.age_s - 1
        with pytest.raises(UnreachableError, match="cannot be reached"):
            names.lookup("TopicB")


def test_a_cached_route_is_not_read_again_before_its_time(worker: Running) -> None:
    worker.register()
    with Client(worker.http, cache_s=60) as names:
        known = names.lookup("TopicA")
        assert names.lookup("TopicA") is known
        assert names.lookup("TopicA", max_age_s=0) is not known


def test_a_token_is_missing_wrong_or_right(store_url: str, namespace_name: str, tmp_path: Path) -> None:
    # A service that listens on all addresses demands a token for deletions.
    command = ("serve", "--redis-url", store_url, "--namespace", namespace_name, "--admin-token", "right-token-of-test")
    with Running(*command, folder=tmp_path) as service:
        port = service.http.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}"
        with Client(url, token="wrong") as names, pytest.raises(NotAllowedError, match="The token is wrong"):
            names.register("demo", "broker-a", ADDRESS, ["TopicA"]).__enter__()
        with Client(url) as names:
            registration = names.register("demo", "broker-a", ADDRESS, ["TopicA"])
            registration.__enter__()
            with pytest.raises(NotAllowedError) as caught:
                registration.__exit__(None, None, None)
            assert caught.value.kind == "token-missing"
        with Client(url, token="right-token-of-test") as names:
            with names.register("demo", "broker-a", ADDRESS, ["TopicA"]):
                assert names.lookup("TopicA").queues
            with pytest.raises(NotFoundError):
                names.lookup("TopicA")


def test_refusals_carry_the_services_own_words(worker: Running) -> None:
    with Client(worker.http) as names, pytest.raises(RefusedError) as caught:
        names.register("demo", "broker-a", "no address", ["TopicA"]).__enter__()
    assert caught.value.status == 422
    assert caught.value.kind == "invalid-input"


def test_the_next_address_is_used_when_one_does_not_answer(worker: Running) -> None:
    worker.register()
    with Client(f"http://127.0.0.1:{lasting_free_port()},{worker.http}", retries=1) as names:
        assert names.lookup("TopicA").queues


@pytest.mark.parametrize("urls", ["", "names:8080", "http://a,ftp://b"])
def test_an_address_that_is_none_is_refused_at_once(urls: str) -> None:
    with pytest.raises(ValueError, match="is no list of"):
        Client(urls)
