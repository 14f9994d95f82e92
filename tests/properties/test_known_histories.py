"""Short histories that once had a wrong result, and some that random histories seldom contain."""

from typing import Any

import pytest

from routebook.model.broker import Registration
from routebook.store.connection.client import StoreClient
from tests.properties import operations as op
from tests.properties.test_histories import check_registry, check_scripts, stage_in_small_parts
from tests.reference.build import A, B, mapping, registration, topics

EAST_A, WEST_A = ("east", A), ("west", A)


def register(address: str = A, broker_id: int = 0, **changes: Any) -> op.Register:
    return op.Register(registration(address, broker_id, **changes))


def unversioned(address: str = A, **changes: Any) -> Registration:
    """A registration without a data version, which always counts as changed."""
    return registration(address, data_version=None, **changes)


HISTORIES: dict[str, list[op.Operation]] = {
    "an instance without a seat expires and keeps the write permission that an operator set": [
        register(A, 1, acting_master=True),
        register(B, 1, acting_master=True),
        op.SetWritePermission("broker-a", writable=True),
        op.Expire((EAST_A,)),
    ],
    "removing a group without seats removes its queues in the history": [
        register(A, topics=topics("orders")),
        register(A, cluster="west", topics=topics("orders")),
        op.RegisterTopic("orders", tuple((name, data) for name, data in {"broker-a": topics("t")["t"]}.items())),
        op.Unregister((("east", "broker-a", A),)),
        register(A, cluster="west"),
    ],
    "removing an instance without a group adds no group to the history": [
        register(A),
        register(A, cluster="west"),
        op.Unregister((("east", "broker-a", A),)),
        op.Expire((WEST_A,)),
    ],
    "a replacing registration with mappings replaces the topics": [
        register(A),
        op.Register(unversioned(topics=topics("orders"), mappings={"orders": mapping()}, replace_topics=True)),
    ],
    "a repeated registration restores a mapping that another broker replaced": [
        op.Register(unversioned(mappings={"orders": mapping(epoch=1)})),
        op.Register(unversioned(B, broker="broker-b", mappings={"orders": mapping(epoch=2)})),
        op.Repeat(0),
        op.Repeat(1),
    ],
    "a group that is removed and registered within one batch has no former topics": [
        register(A),
        op.CatchUp(),
        op.Depart(0, "unregisters"),
        register(A, topics=topics("new", "newer")),
        op.CatchUp(),
    ],
    "a replacing registration without topics removes all topics": [
        register(A),
        op.Register(unversioned(topics={}, replace_topics=True)),
    ],
    "a repeated registration deletes topics after the deletion option is switched on": [
        register(A, topics=topics("orders", "payments", "billing")),
        register(A),
        op.Repeat(1),
        op.SetDeletionOption(on=True),
        op.Repeat(1),
    ],
    "a repeated registration of a slave without master publishes its topics": [
        register(A),
        register(B, 1, topics=topics("orders", "of the slave", read_queues=3)),
        op.Depart(0, "unregisters"),
        op.Repeat(1),
    ],
    "a repeated registration of a slave after the expiry of its master publishes its topics": [
        register(A),
        register(B, 1, topics=topics("orders", "of the slave", read_queues=3)),
        op.Depart(0, "expires"),
        op.Repeat(1),
    ],
    "a topic that is removed by its key and registered by its name is new": [
        register(A),
        op.SetDeletionOption(on=True),
        register(A, topics=topics("orders", "payments", read_queues=3), table_keys=frozenset({"orders", "another"})),
    ],
}
every_history = pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)


@every_history
async def test_scripts_agree_with_the_reference_model(client: StoreClient, history: list[op.Operation]) -> None:
    await check_scripts(client, history)


@every_history
async def test_the_registry_agrees_with_the_reference_model(client: StoreClient, history: list[op.Operation]) -> None:
    await check_registry(client, history)


@every_history
async def test_staged_registrations_agree_with_the_reference_model(
    client: StoreClient, history: list[op.Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_in_small_parts(monkeypatch)
    await check_registry(client, history)
