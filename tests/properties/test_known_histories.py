"""Histories that once ended wrong, each as short as it was found, and some that random ones seldom meet."""

from typing import Any

import pytest

from routebook.model.broker import Registration
from routebook.store.connection.client import StoreClient
from tests.properties import operations as op
from tests.properties.test_histories import prepare_in_parts, through_scripts, through_the_registry
from tests.reference.build import A, B, mapping, registration, topics

EAST_A, WEST_A = ("east", A), ("west", A)


def says(address: str = A, broker_id: int = 0, **changes: Any) -> op.Register:
    return op.Register(registration(address, broker_id, **changes))


def nameless(address: str = A, **changes: Any) -> Registration:
    """Without a data version: counts as changed every time."""
    return registration(address, data_version=None, **changes)


HISTORIES: dict[str, list[op.Operation]] = {
    "an instance whose seat was taken expires without wiping an operator's write permission": [
        says(A, 1, acting_master=True),
        says(B, 1, acting_master=True),
        op.SetWritePermission("broker-a", writable=True),
        op.Expire((EAST_A,)),
    ],
    "an emptied group that is removed leaves the history with its queues": [
        says(A, topics=topics("orders")),
        says(A, cluster="west", topics=topics("orders")),
        op.RegisterTopic("orders", tuple((name, data) for name, data in {"broker-a": topics("t")["t"]}.items())),
        op.Unregister((("east", "broker-a", A),)),
        says(A, cluster="west"),
    ],
    "an instance whose group is gone leaves no group behind in the history": [
        says(A),
        says(A, cluster="west"),
        op.Unregister((("east", "broker-a", A),)),
        op.Expire((WEST_A,)),
    ],
    "a registration that replaces and brings mappings replaces": [
        says(A),
        op.Register(nameless(topics=topics("orders"), mappings={"orders": mapping()}, replace_topics=True)),
    ],
    "a repeat brings back the mapping that another broker wrote over": [
        op.Register(nameless(mappings={"orders": mapping(epoch=1)})),
        op.Register(nameless(B, broker="broker-b", mappings={"orders": mapping(epoch=2)})),
        op.Repeat(0),
        op.Repeat(1),
    ],
    "a group that went and came back within one batch keeps no old topic": [
        says(A),
        op.Follow(),
        op.Leave(0, "says so"),
        says(A, topics=topics("new", "newer")),
        op.Follow(),
    ],
    "a registration that replaces all by nothing leaves nothing": [
        says(A),
        op.Register(nameless(topics={}, replace_topics=True)),
    ],
    "a repeat after the option that deletes topics was switched on deletes": [
        says(A, topics=topics("orders", "payments", "billing")),
        says(A),
        op.Repeat(1),
        op.SetDeletingOption(on=True),
        op.Repeat(1),
    ],
    "a slave that repeats itself after its master left publishes its topics": [
        says(A),
        says(B, 1, topics=topics("orders", "of the slave", read_queues=3)),
        op.Leave(0, "says so"),
        op.Repeat(1),
    ],
    "a slave that repeats itself after its master expired publishes its topics": [
        says(A),
        says(B, 1, topics=topics("orders", "of the slave", read_queues=3)),
        op.Leave(0, "expires"),
        op.Repeat(1),
    ],
    "a topic dropped by its key and brought by its name is new": [
        says(A),
        op.SetDeletingOption(on=True),
        says(A, topics=topics("orders", "payments", read_queues=3), table_keys=frozenset({"orders", "another"})),
    ],
}
every_history = pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)


@every_history
async def test_through_scripts(client: StoreClient, history: list[op.Operation]) -> None:
    await through_scripts(client, history)


@every_history
async def test_through_the_registry(client: StoreClient, history: list[op.Operation]) -> None:
    await through_the_registry(client, history)


@every_history
async def test_through_the_registry_in_parts(
    client: StoreClient, history: list[op.Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_in_parts(monkeypatch)
    await through_the_registry(client, history)
