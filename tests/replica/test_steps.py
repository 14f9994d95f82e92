"""Large groups are applied in steps; between two of them, readers see the table before or after, never half of it."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import BrokerGroup, QueueData
from routebook.replica import load as loading
from routebook.replica import table as tables
from routebook.replica.load import in_steps
from routebook.replica.table import STEP_TOPICS, Table, finish
from routebook.store import reads
from routebook.store.namespace import Namespace
from routebook.store.reads import GroupImage
from tests.reference.build import mapping as registered_mapping
from tests.reference.build import topics, version
from tests.replica.build import A, B, group, image, mapping, route_of, table_of
from tests.replica.following import following, register, unregister

MANY = 70_000
NAMES = [f"topic-{number}" for number in range(MANY)]


def facts_of(table: Table) -> Mapping[str, Any]:
    """Everything that a reader can see of the groups."""
    return {
        "groups": dict(table.groups),
        "clusters": {name: set(brokers) for name, brokers in table.clusters.items()},
        "queues": {name: dict(table.queues_of(name)) for name in table.names()},
        "topics": {topic: list(table.brokers_of(topic).items()) for topic in table.topics},
        "mappings": {name: dict(table.mappings_of_broker(name)) for name in table.names()},
        "mapped": {topic: dict(table.mappings_of_topic(topic)) for topic in TOPICS},
        "entries": table.entry_count,
        "digest": table.digest,
    }


# -- any images, in steps of one topic

TOPICS = ("t-1", "t-2", "t-3", "t-4")
BROKERS = ("b-1", "b-2", "b-3")
queues = st.builds(QueueData, read_queues=st.sampled_from([4, 8]))
groups = st.none() | st.builds(
    BrokerGroup,
    name=st.just(""),
    cluster=st.sampled_from(["east", "west"]),
    acting_master=st.booleans(),
    addresses=st.dictionaries(st.integers(0, 1), st.sampled_from([A, B]), max_size=2),
    revision=st.integers(0, 9),
)
images = st.builds(
    GroupImage,
    group=groups,
    clusters=st.frozensets(st.sampled_from(["east", "west"])),
    queues=st.dictionaries(st.sampled_from(TOPICS), st.none() | queues),
    all_queues=st.just(False),
    mappings=st.dictionaries(st.sampled_from(TOPICS), st.builds(mapping, epoch=st.integers(0, 2))),
) | st.builds(
    GroupImage,
    group=groups,
    clusters=st.frozensets(st.sampled_from(["east", "west"])),
    queues=st.dictionaries(st.sampled_from(TOPICS), queues),
    all_queues=st.just(True),
    mappings=st.dictionaries(st.sampled_from(TOPICS), st.builds(mapping, epoch=st.integers(0, 2))),
)
batches = st.lists(st.dictionaries(st.sampled_from(BROKERS), images, min_size=1), max_size=6)


@settings(max_examples=150, deadline=None)
@given(batches)
def test_steps_give_the_table_and_digest_of_one_group_at_a_time(history: list[dict[str, GroupImage]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "STEP_TOPICS", 1)
        in_parts, at_once = Table(), Table()
        for batch in history:
            before = facts_of(in_parts)
            steps = in_parts.work_out(batch)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    updates = end.value
                    break
                assert facts_of(in_parts) == before
            changed = set[str]().union(*(at_once.apply_group(name, found) for name, found in batch.items()))
            assert in_parts.put_in_place(updates) == changed
            assert facts_of(in_parts) == facts_of(at_once)
            assert in_parts.digest == in_parts.compute_digest()


# -- large groups


def index_by_topic(table: Table) -> Mapping[str, tuple[str, ...]]:
    return table._queues.topics  # no answer shows the tuples themselves


@pytest.mark.parametrize("former", [[], NAMES[: MANY // 2]])
def test_no_step_works_out_more_than_a_few_thousand_topics(former: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the hashes that a step computes, which are most of its work."""
    hashed = 0
    hasher = tables.queue_hasher

    def counting(broker: str) -> Any:
        fact = hasher(broker)

        def count(topics: Collection[str], queue: QueueData) -> int:
            nonlocal hashed
            hashed += len(topics)
            return fact(topics, queue)

        return count

    table = table_of(image(group(), former))
    monkeypatch.setattr(tables, "queue_hasher", counting)
    wanted = image(group(revision=2), {name: QueueData(4, 4) for name in NAMES})
    most = number = 0
    for _ in table.work_out({"broker-a": wanted}):
        most, hashed, number = max(most, hashed), 0, number + 1
    assert 0 < most <= 2 * STEP_TOPICS
    assert number >= MANY // STEP_TOPICS - 1
    assert table.entry_count == len(former)


def test_topics_of_the_same_brokers_share_one_entry_of_the_index() -> None:
    names = NAMES[:10]
    table = table_of(image(group(name="b"), names), image(group(name="a"), names), image(group(name="c"), names[:5]))
    brokers = index_by_topic(table)
    assert {topic: brokers[topic] for topic in (names[0], names[9])} == {
        names[0]: ("a", "b", "c"),
        names[9]: ("a", "b"),
    }
    assert len({id(brokers[topic]) for topic in names}) == 2


async def test_lookups_between_two_steps_see_the_old_or_the_new_route(namespace: Namespace) -> None:
    """Each registration has the same queue numbers for all its topics."""
    names = [f"topic-{number}" for number in range(12_000)]
    probes = names[:: len(names) // 7]
    async with following(namespace) as replica:
        seen: set[tuple[int | None, ...]] = set()
        looked_up = 0

        async def look_up() -> None:
            nonlocal looked_up
            while True:
                routes = [route_of(replica.view, topic) for topic in probes]
                seen.add(tuple(route and route.queues["broker-a"].read_queues for route in routes))
                looked_up += 1
                assert replica.view.entry_count in (0, len(names))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look_up())
        for number in (1, 2):
            registered = topics(*names, read_queues=number)
            written = await register(namespace, A, data_version=version(number), topics=registered)
            await replica.wait_for(written, 30_000)
            assert replica.table.digest == replica.table.compute_digest()
        await replica.wait_for(await unregister(namespace, "broker-a", A), 30_000)
        looking.cancel()
        assert seen == {(None,) * len(probes), (1,) * len(probes), (2,) * len(probes)}
        assert looked_up > 2 * len(names) // STEP_TOPICS
        assert replica.table.digest == replica.table.compute_digest()
        assert not replica.table.topics


async def test_a_lookup_after_the_last_step_gets_no_cached_route_of_before(namespace: Namespace) -> None:
    names = [f"topic-{number}" for number in range(3 * STEP_TOPICS)]
    async with following(namespace) as replica:
        await replica.wait_for(await register(namespace, A, topics=topics(*names)), 30_000)
        former = {topic: replica.route_bytes(topic) for topic in names[::100]}
        changed = topics(*names, read_queues=3)
        await replica.wait_for(await register(namespace, A, data_version=version(2), topics=changed), 30_000)
        for topic, body in former.items():
            assert replica.route_bytes(topic) != body


# -- reading from the store


async def test_a_change_of_many_topics_is_read_in_pages(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_TOPICS_NAMED", 50)
    monkeypatch.setattr(reads, "ENTRIES_PER_PAGE", 50)
    async with following(namespace) as replica:
        for number, count in enumerate((700, 40, 60)):
            names = [f"topic-{n}" for n in range(count)]
            registered = topics(*names, read_queues=number + 1)
            written = await register(namespace, A, data_version=version(number), topics=registered)
            await replica.wait_for(written, 30_000)
            assert replica.table.queues_of("broker-a").items() >= registered.items()
            assert replica.table.entry_count == 700
            assert replica.table.digest == replica.table.compute_digest()


async def test_many_static_mappings_are_read_and_applied(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MAPPINGS_PER_STEP", 7)
    monkeypatch.setattr(tables, "STEP_TOPICS", 30)
    names = [f"topic-{number}" for number in range(100)]
    mappings = {name: registered_mapping(name) for name in names}
    async with following(namespace) as replica:
        written = await register(namespace, A, topics=topics(*names), mappings=mappings)
        await replica.wait_for(written, 30_000)
        assert replica.table.mappings_of_broker("broker-a") == mappings
        assert all(replica.table.mappings_of_topic(name).keys() == {"broker-a"} for name in names)
        assert replica.table.digest == replica.table.compute_digest()


async def test_other_work_passes_between_two_steps() -> None:
    table, passed = Table(), 0

    async def other() -> None:
        nonlocal passed
        while True:
            passed += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    wanted = image(group(), {name: QueueData() for name in NAMES[: 10 * STEP_TOPICS]})
    updates = await in_steps(table.work_out({"broker-a": wanted}))
    task.cancel()
    assert passed >= 9
    assert table.put_in_place(updates) == set(wanted.queues)
    assert finish(table.work_out({"broker-a": wanted})).changed == set()
