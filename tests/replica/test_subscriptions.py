"""Who is told of which route, and what becomes of a reader that does not keep up."""

import asyncio

from routebook.replica.replica import MAX_QUEUED_EVENTS, RouteEvent, Subscriptions
from routebook.store.namespace import Namespace
from tests.reference.build import topics
from tests.replica.build import A, B
from tests.replica.following import following, register


async def test_a_subscriber_hears_of_its_own_topic_only() -> None:
    all_of_them = Subscriptions()
    one, every = all_of_them.add("orders"), all_of_them.add(None)
    assert all_of_them.wanted({"payments", "orders", "a"}) == ["a", "orders", "payments"]
    all_of_them.publish(["orders", "payments"], 5, 7)
    assert await anext(one) == RouteEvent("orders", 5, 7)
    assert [await anext(every) for _ in range(2)] == [
        RouteEvent("orders", 5, 7, last=False),
        RouteEvent("payments", 5, 7, last=True),
    ]


async def test_only_what_somebody_waits_for_is_wanted() -> None:
    some = Subscriptions()
    with some.add("orders"), some.add("orders"), some.add("zebra"):
        assert some.wanted({"payments", "orders", "a", "b"}) == ["orders"]
        assert some.wanted({"orders"}) == ["orders"]
        assert len(some) == 3
    assert not len(some)
    assert some.wanted({"orders"}) == []


async def test_a_closed_subscription_ends_after_what_was_waiting() -> None:
    some = Subscriptions()
    with some.add("orders") as subscription:
        some.publish(["orders"], 1, 1)
    some.publish(["orders"], 2, 2)
    assert [event.version async for event in subscription] == [1]
    assert [event async for event in subscription] == []
    assert not subscription.lagged


async def test_closing_ends_a_waiting_reader() -> None:
    subscription = Subscriptions().add(None)
    waiting = asyncio.create_task(anext(subscription, None))
    await asyncio.sleep(0)
    subscription.close()
    assert await waiting is None


async def test_a_reader_that_does_not_keep_up_is_let_go_and_told_so() -> None:
    some = Subscriptions()
    slow = some.add("orders")
    for number in range(MAX_QUEUED_EVENTS + 1):
        some.publish(["orders"], 1, number)
    assert slow.lagged
    assert not len(some)
    assert len([event async for event in slow]) == MAX_QUEUED_EVENTS


async def test_a_change_is_told_once_and_only_when_the_route_differs(namespace: Namespace) -> None:
    await register(namespace, A)
    async with following(namespace) as replica:
        with replica.subscriptions.add("orders") as subscription:
            before = replica.route_bytes("orders")
            # A new heartbeat timeout is a change, but not one of the route.
            await replica.wait_for(await register(namespace, A, timeout_ms=99_000), 20_000)
            version = await register(namespace, B, 1, timeout_ms=99_000)
            event = await anext(subscription)
            assert (event.topic, event.version) == ("orders", version)
            assert replica.route_bytes("orders") != before


async def test_of_all_routes_the_last_event_of_a_version_is_marked(namespace: Namespace) -> None:
    async with following(namespace) as replica:
        with replica.subscriptions.add() as subscription:
            await register(namespace, A, topics=topics("a", "b", "c"))
            events = [await anext(subscription) for _ in range(3)]
            assert [(event.topic, event.last) for event in events] == [("a", False), ("b", False), ("c", True)]
            assert {event.version for event in events} == {1}
