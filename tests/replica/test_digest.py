"""The digest depends on the facts in the table only, not on the order in which they were applied."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from routebook.model.broker import BrokerGroup, DataVersion, QueueData
from routebook.replica.table import Table
from tests.replica.build import group, image, instance, mapping

BROKERS = ("b-1", "b-2", "b-3")
TOPICS = ("t-1", "t-2", "t-3", "t-4")
ADDRESSES = ("h1:1", "h2:1", "h3:1")

queues = st.builds(
    QueueData, read_queues=st.sampled_from([4, 8]), perm=st.sampled_from([4, 6]), by_request=st.booleans()
)
groups = st.builds(
    BrokerGroup,
    name=st.just(""),
    cluster=st.sampled_from(["east", "west"]),
    zone=st.sampled_from([None, "", "z"]),
    acting_master=st.booleans(),
    addresses=st.dictionaries(st.integers(0, 2), st.sampled_from(ADDRESSES), max_size=2),
    revision=st.integers(0, 9),
)
images = st.fixed_dictionaries(
    {
        "queues": st.dictionaries(st.sampled_from(TOPICS), st.none() | queues),
        "clusters": st.sets(st.sampled_from(["east", "west"])),
        "mappings": st.dictionaries(st.sampled_from(TOPICS), st.builds(mapping, epoch=st.integers(0, 2))),
        "all_queues": st.booleans(),
    }
)
members = st.none() | st.builds(
    instance,
    address=st.just("h1:1"),
    incarnation=st.sampled_from(["i1", "i2"]),
    ha_address=st.sampled_from(["", "h1:2"]),
    data_version=st.sampled_from([None, DataVersion(), DataVersion(counter=1)]),
    filters=st.sampled_from([(), ("f",), ("f", "g")]),
)
texts = st.dictionaries(st.sampled_from(["k", "l"]), st.text(max_size=3))
steps = st.one_of(
    st.tuples(st.just("group"), st.sampled_from(BROKERS), st.none() | groups, images),
    st.tuples(st.just("instance"), members),
    st.tuples(st.just("kv"), st.sampled_from(["n", "ORDER_TOPIC_CONFIG"]), st.none() | texts),
    st.tuples(st.just("settings"), texts),
)


def take(table: Table, step: tuple[Any, ...]) -> None:
    match step:
        case "group", name, found, fields:
            renamed = found and replace(found, name=name)
            wanted = fields["queues"]
            if fields["all_queues"]:
                wanted = {topic: queue for topic, queue in wanted.items() if queue is not None}
            table.apply_group(name, image(renamed, **{**fields, "queues": wanted}))
        case "instance", found:
            table.apply_instance("east/h1:1", found)
        case "kv", namespace, values:
            table.apply_kv(namespace, values)
        case "settings", values:
            table.apply_settings(values)


def rebuilt(table: Table, order: random.Random) -> Table:
    """The same facts, applied in another order and in other portions."""
    fresh = Table()
    for name in order.sample(sorted(table.names()), k=len(table.names())):
        whole = table.image_of(name)
        for topic in order.sample(sorted(whole.queues), k=len(whole.queues)):
            fresh.apply_group(name, table.image_of(name, [topic]))
        fresh.apply_group(name, whole)
    fresh.apply_settings(table.settings)
    for member, found in table.instances.items():
        fresh.apply_instance(member, found)
    for namespace, values in table.kv.items():
        fresh.apply_kv(namespace, values)
    return fresh


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=25), st.randoms())
def test_after_any_history_the_digest_is_the_sum_of_the_facts(
    history: list[tuple[Any, ...]], order: random.Random
) -> None:
    table = Table()
    for step in history:
        take(table, step)
    assert table.digest == table.compute_digest()
    assert rebuilt(table, order).digest == table.digest
    assert all(list(table.brokers_of(topic)) == sorted(table.brokers_of(topic)) for topic in table.topics)
    assert table.entry_count == sum(len(table.queues_of(name)) for name in table.names())


def test_every_field_changes_the_digest() -> None:
    seen = {Table().digest}
    for found in (
        group(),
        group({0: "h2:1"}),
        group({1: "h1:1"}),
        group(zone=""),
        group(zone="z"),
        group(acting_master=True),
        group(cluster="west"),
    ):
        table = Table()
        table.apply_group("broker-a", image(found, clusters=[]))
        assert table.digest not in seen
        seen.add(table.digest)
    for one in (
        instance(),
        instance(broker="b"),
        instance(broker_id=1),
        instance(incarnation="i2"),
        instance(timeout_ms=1),
        instance(ha_address="h"),
        instance(data_version=DataVersion()),
        instance(filters=("f",)),
    ):
        table = Table()
        table.apply_instance(one.instance_name, one)
        assert table.digest not in seen
        seen.add(table.digest)
