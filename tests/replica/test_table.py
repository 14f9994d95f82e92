"""Applying what was read from the store: the table afterwards, and the topics whose routes change."""

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, PERM_READ, QueueData
from routebook.replica.load import changed_topics
from routebook.replica.table import Table
from tests.replica.build import BROKER, A, B, group, image, instance, mapping, route_of, table_of


def difference(old: Table, new: Table) -> set[str]:
    return set().union(*changed_topics(old, new))


def test_a_new_group_changes_all_its_topics() -> None:
    table = Table()
    assert table.apply_group(BROKER, image(group(), ["orders", "payments"])) == {"orders", "payments"}
    assert table.apply_group(BROKER, image(group(), ["orders", "payments"])) == set()


def test_an_image_of_some_topics_keeps_the_others() -> None:
    table = table_of(image(group(), ["orders", "payments", "returns"]))
    changes = {"payments": QueueData(4, 4), "returns": None, "new": QueueData(), "orders": QueueData()}
    assert table.apply_group(BROKER, image(group(), changes, all_queues=False)) == {
        "payments",
        "returns",
        "new",
    }
    assert table.queues_of(BROKER) == {"orders": QueueData(), "payments": QueueData(4, 4), "new": QueueData()}
    assert set(table.topics) == {"orders", "payments", "new"}


def test_a_complete_image_removes_topics_that_it_does_not_contain() -> None:
    table = table_of(image(group(), ["orders", "payments"], mappings={"orders": mapping()}))
    assert table.apply_group(BROKER, image(group(), ["payments"])) == {"orders"}
    assert not table.mappings_of_topic("orders")


def test_a_removed_group_changes_its_topics_and_leaves_nothing() -> None:
    table = table_of(image(group(), ["orders"]))
    assert table.apply_group(BROKER, image(None)) == {"orders"}
    assert not table.names()
    assert (table.digest, table.entry_count) == (Table().digest, 0)


def test_a_flag_or_an_address_changes_every_topic_of_the_group() -> None:
    for changed in (group({0: A, 1: B}), group(zone="z"), group(acting_master=True), group(cluster="west")):
        table = table_of(image(group(), ["orders", "payments"]))
        assert table.apply_group(BROKER, image(changed, {}, all_queues=False)) == {"orders", "payments"}


def test_a_new_revision_alone_changes_no_topic_but_is_stored() -> None:
    table = table_of(image(group(revision=3), ["orders"]))
    before = table.digest
    assert table.apply_group(BROKER, image(group(revision=4), {}, all_queues=False)) == set()
    assert table.groups[BROKER].revision == 4
    assert table.digest == before


def test_filters_change_every_group_with_the_address_in_that_cluster() -> None:
    other, elsewhere = group(name="other"), group(name="elsewhere", cluster="west")
    table = table_of(image(group(), ["orders"]), image(other, ["shared"]), image(elsewhere, ["far"]))
    assert table.apply_instance(f"east/{A}", instance(filters=("f",))) == {"orders", "shared"}
    assert table.apply_instance(f"east/{A}", instance(filters=("f",), incarnation="i2")) == set()
    assert table.apply_instance(f"east/{A}", None) == {"orders", "shared"}


def test_only_key_values_of_the_order_configuration_change_topics() -> None:
    table = Table()
    assert table.apply_kv(ORDER_TOPIC_NAMESPACE, {"orders": "a:1", "same": "a:1"}) == {"orders", "same"}
    assert table.apply_kv(ORDER_TOPIC_NAMESPACE, {"orders": "a:2", "same": "a:1"}) == {"orders"}
    assert table.apply_kv(ORDER_TOPIC_NAMESPACE, None) == {"orders", "same"}
    assert table.apply_kv("other", {"orders": "a:1"}) == set()


def test_an_empty_key_value_namespace_is_not_absent() -> None:
    table = Table()
    nothing = table.digest
    table.apply_kv("n", {})
    assert table.kv == {"n": {}}
    assert table.digest != nothing


def test_applying_settings_returns_whether_they_changed() -> None:
    table = Table()
    assert table.apply_settings({"a": "1"})
    assert not table.apply_settings({"a": "1"})
    assert table.apply_settings({})
    assert table.digest == Table().digest


def test_a_name_may_be_in_several_clusters_and_an_empty_cluster_is_removed() -> None:
    table = table_of(image(group(), clusters=["east", "west"]))
    assert table.clusters == {"east": {BROKER}, "west": {BROKER}}
    table.apply_group(BROKER, image(group(), clusters=["west"]))
    assert table.clusters == {"west": {BROKER}}


def test_applying_the_image_of_a_table_gives_an_equal_table() -> None:
    table = table_of(image(group(zone="z"), ["orders"], clusters=["west"], mappings={"orders": mapping()}))
    assert table_of(table.image_of(BROKER)).digest == table.digest
    some = table.image_of(BROKER, ["orders", "absent"])
    assert (some.queues, some.all_queues) == ({"orders": QueueData(), "absent": None}, False)


def test_equal_values_are_one_object() -> None:
    table = table_of(image(group(), ["one", "other"]), image(group(name="b"), ["one"]))
    assert len({id(queue) for name in (BROKER, "b") for queue in table.queues_of(name).values()}) == 1


def test_the_difference_of_two_tables_is_exactly_the_routes_that_differ() -> None:
    old = table_of(
        image(group(), ["orders", "payments"]),
        image(group(name="b"), ["b1", "b2"]),
        image(group(name="c"), ["c1"]),
    )
    new = table_of(
        image(group(), {"orders": QueueData(perm=PERM_READ), "payments": QueueData(), "new": QueueData()}),
        image(group({1: A}, name="b"), ["b1"]),
        image(group(name="c"), ["c1"]),
    )
    assert difference(old, new) == difference(new, old) == {"orders", "new", "b1", "b2"}
    assert all(route_of(old, topic) != route_of(new, topic) for topic in ("orders", "new", "b1", "b2"))
    assert difference(old, old) == set()


def test_the_difference_includes_filters_mappings_and_order_configuration() -> None:
    old = table_of(image(group(), ["orders", "payments"]), image(group({0: B}, name="b"), ["b1"]))
    new = table_of(
        image(group(), ["orders", "payments"], mappings={"orders": mapping()}),
        image(group({0: B}, name="b"), ["b1"]),
    )
    new.apply_instance(f"east/{B}", instance(B, broker="b", filters=("f",)))
    new.apply_kv(ORDER_TOPIC_NAMESPACE, {"payments": "x"})
    assert difference(old, new) == difference(new, old) == {"orders", "b1", "payments"}
