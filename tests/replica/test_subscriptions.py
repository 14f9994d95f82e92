"""Subscriptions get the events of their route, and are ended when they do not keep up."""

import asyncio

from routebook.replica.replica import MAX_QUEUED_EVENTS, RouteEvent, Subscriptions
from routebook.store.namespace import Namespace
from tests.reference.build import topics
from tests.replica.build import A, B
from tests.replica.following import following, register


async def test_a_subscriber_gets_events_of_its_own_topic_only() -> None:
    subscriptions = Subscriptions()
    one, all_routes = subscriptions.add("orders"), subscriptions.add(None)
    assert subscriptions.wanted({"payments", "orders", "a"}) == ["a", "orders", "payments"]
    subscriptions.publish(["orders", "payments"], 5, 7)
    assert await anext(one) == RouteEvent("orders", 5, 7)
    assert [await anext(all_routes) for _ in range(2)] == [
        RouteEvent("orders", 5, 7, last=False),
        RouteEvent("payments", 5, 7, last=True),
    ]


async def test_only_topics_with_a_subscriber_are_wanted() -> None:
    subscriptions = Subscriptions()
    with subscriptions.add("orders"), subscriptions.add("orders"), subscriptions.add("zebra"):
        assert subscriptions.wanted({"payments", "orders", "a", "b"}) == ["orders"]
        assert subscriptions.wanted({"orders"}) == ["orders"]
        assert len(subscriptions) == 3
    assert not len(subscriptions)
    assert subscriptions.wanted({"orders"}) == []


async def test_a_closed_subscription_ends_after_its_queued_events() -> None:
    subscriptions = Subscriptions()
    with subscriptions.add("orders") as subscription:
        subscriptions.publish(["orders"], 1, 1)
    subscriptions.publish(["orders"], 2, 2)
    assert [event.version async for event in subscription] == [1]
    assert [event async for event in subscription] == []
    assert not subscription.lagged


async def test_closing_ends_a_waiting_reader() -> None:
    subscription = Subscriptions().add(None)
    waiting = asyncio.create_task(anext(subscription, None))
    await asyncio.sleep(0)
    subscription.close()
    assert await waiting is None


async def test_a_slow_subscription_is_ended_and_marked_as_lagging() -> None:
    subscriptions = Subscriptions()
    slow = subscriptions.add("orders")
    for number in range(MAX_QUEUED_EVENTS + 1):
        subscriptions.publish(["orders"], 1, number)
    assert slow.lagged
    assert not len(subscriptions)
    assert len([event async for event in slow]) == MAX_QUEUED_EVENTS


async def test_a_change_is_published_once_and_only_if_the_route_differs(namespace: Namespace) -> None:
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
