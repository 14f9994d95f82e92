"""Objects of a change are read completely, never half of a later change, and a load includes concurrent changes."""

import asyncio
import random
from itertools import count

import pytest

from routebook.model.broker import QueueData
from routebook.replica.load import Position, References, changed_topics, load, reread
from routebook.replica.table import Table, finish
from routebook.store.administration import (
    delete_kv,
    delete_topic,
    put_kv,
    register_topic,
    set_setting,
    set_write_permission,
)
from routebook.store.history import Change, read_changes
from routebook.store.namespace import Namespace
from routebook.store.workers import open_namespace
from tests.properties.plain_worker import CALLER
from tests.reference.build import mapping, topics, version
from tests.replica.build import A, B, C
from tests.replica.following import register, unregister


async def changes_after(namespace: Namespace, number: int) -> list[Change]:
    return [change for change in await read_changes(namespace, (0, 0), count=10_000) if change.version > number]


def change(kind: str, **fields: object) -> Change:
    return Change(1, 1, kind, fields)


def references_of(changes: list[Change]) -> References:
    return finish(References.collect(changes))


def test_topics_of_one_group_are_collected_and_all_includes_some() -> None:
    one = change("queues-changed", broker="a", queues=[{"t": "x"}])
    other = change("broker-changed", cluster="c", broker="a", addr="h:1", queues=[{"t": "y"}], mapped=["m"])
    references = references_of([one, other])
    assert references.groups == {"a": {"x", "y"}, "m": set()}
    assert references.instance_names == {"c/h:1"}
    every = change("write-permission", broker="a")
    assert references_of([every, one]).groups == references_of([one, every]).groups == {"a": None}


def test_for_an_unknown_kind_the_whole_group_is_read() -> None:
    assert references_of([change("broker-painted", broker="a", queues=[{"t": "x"}])]).groups == {"a": None}
    assert references_of([change("weather", temperature=3)]) == References()


def test_key_values_settings_and_instances_are_referenced() -> None:
    references = references_of(
        [
            change("kv-put", namespace="n", key="k"),
            change("kv-deleted", namespace="m", key="k"),
            change("settings-changed", key="k", value="v"),
            change("group-changed", cluster="c", broker="a", instances=["c/h:1"]),
        ]
    )
    assert (references.namespaces, references.settings, references.instance_names) == ({"n", "m"}, True, {"c/h:1"})


async def test_a_group_that_has_changed_since_is_read_completely(namespace: Namespace) -> None:
    """What is read for the first change includes the second one, which then has to be complete."""
    table = Table()
    await register(namespace, A)
    (await reread(namespace, await changes_after(namespace, 0))).apply_to(table)
    await register(namespace, A, data_version=version(1), topics=topics("orders", read_queues=2))
    await register(namespace, A, data_version=version(2), topics=topics("orders", "payments", read_queues=3))
    first, _ = await changes_after(namespace, 1)
    assert first.topics == frozenset({"orders"})
    (await reread(namespace, [first])).apply_to(table)
    assert table.queues_of("broker-a") == topics("orders", "payments", read_queues=3)


async def test_topics_of_a_removed_group_are_removed_although_no_entry_names_them(namespace: Namespace) -> None:
    table = Table()
    await register(namespace, A)
    (await reread(namespace, await changes_after(namespace, 0))).apply_to(table)
    await unregister(namespace, "broker-a", A)
    (await reread(namespace, await changes_after(namespace, 1))).apply_to(table)
    assert table.digest == Table().digest
    assert not table.names()


async def test_a_load_includes_changes_made_meanwhile(namespace: Namespace) -> None:
    await open_namespace(namespace)

    loaded: list[tuple[Table, Position]] = []

    async def change_until_loaded_often() -> None:
        for number in count():
            if number >= 60 and len(loaded) > 5:
                return
            names = [f"t-{n}" for n in range(number % 7)]
            await register(namespace, A, data_version=version(number), topics=topics(*names, read_queues=number))
            await register(namespace, B, broker=f"b-{number % 5}", filters=(f"f-{number}",))
            await put_kv(namespace, f"n-{number % 3}", "k", str(number), caller=CALLER)
            if number % 4 == 3:
                await unregister(namespace, f"b-{number % 5}", B)

    changing = asyncio.create_task(change_until_loaded_often())
    while not changing.done():
        loaded.append(await load(namespace))
    await changing
    last, _ = await load(namespace)
    assert last.digest == last.compute_digest()
    for table, position in loaded:
        if changes := await changes_after(namespace, position.version):
            (await reread(namespace, changes)).apply_to(table)
        assert table.digest == last.digest


async def test_a_load_includes_names_without_group_and_hosts_without_broker(namespace: Namespace) -> None:
    await register(namespace, A, topics={"orders": QueueData()}, full=False)
    table, position = await load(namespace)
    assert position.version == 1
    assert table.clusters == {"east": {"broker-a"}}
    assert table.groups["broker-a"].addresses == {}


async def change_at_random(namespace: Namespace, dice: random.Random) -> None:
    broker, address = dice.choice(["broker-a", "broker-b"]), dice.choice([A, B, C])
    names = dice.sample(["orders", "payments", "returns", "billing"], k=dice.randrange(4))
    match dice.randrange(12):
        case 0:
            await unregister(namespace, broker, address, broker_id=dice.randrange(3))
        case 1:
            await delete_topic(namespace, "orders", caller=CALLER, cluster=dice.choice(["", "east", "west"]))
        case 2:
            await set_write_permission(namespace, broker, writable=dice.random() < 0.5, caller=CALLER)
        case 3:
            await register_topic(namespace, "asked-for", {broker: QueueData(dice.randrange(4))}, caller=CALLER)
        case 4:
            await put_kv(namespace, dice.choice(["n", "m"]), dice.choice(["k", "l"]), str(dice.random()), caller=CALLER)
        case 5:
            await delete_kv(namespace, dice.choice(["n", "m"]), dice.choice(["k", "l"]), caller=CALLER)
        case 6:
            await set_setting(namespace, "hold_percent", str(dice.randrange(5)), "x", caller=CALLER)
        case _:
            await register(
                namespace,
                address,
                dice.randrange(3),
                broker=broker,
                cluster=dice.choice(["east", "east", "west"]),
                topics=topics(*names, read_queues=dice.randrange(1, 4)),
                mappings={name: mapping(name, broker) for name in names[:1]} if dice.random() < 0.2 else {},
                data_version=version(dice.randrange(3), state=dice.randrange(2)),
                acting_master=dice.choice([None, False, True]),
                zone=dice.choice([None, None, "z"]),
                filters=dice.choice([None, (), ("f",)]),
                full=dice.random() < 0.7,
                replace_topics=dice.random() < 0.2,
            )


@pytest.mark.parametrize("seed", range(4))
async def test_changes_applied_in_any_portions_give_the_stores_table(namespace: Namespace, seed: int) -> None:
    """Applied late and in portions of any size, as by a slow worker or one that was disconnected."""
    dice = random.Random(seed)
    await open_namespace(namespace)
    tables = [Table() for _ in range(3)]
    seen = [0] * len(tables)
    for _ in range(150):
        await change_at_random(namespace, dice)
        which = dice.randrange(2 * len(tables))
        if which < len(tables) and (changes := await changes_after(namespace, seen[which])):
            portion = changes[: dice.randrange(1, len(changes) + 1)]
            (await reread(namespace, portion)).apply_to(tables[which])
            seen[which] = portion[-1].version
    loaded, position = await load(namespace)
    assert position.version > 50
    for table, number in zip(tables, seen, strict=True):
        if changes := await changes_after(namespace, number):
            (await reread(namespace, changes)).apply_to(table)
        assert table.digest == loaded.digest
        assert not list(filter(None, changed_topics(table, loaded)))
