"""The rules of routes and lists, which are those of Apache's name server."""

from routebook.model.broker import ORDER_TOPIC_NAMESPACE, PERM_READ, QueueData
from routebook.replica import routes
from routebook.replica.table import Table
from tests.replica.build import A, B, C, group, image, instance, mapping, route_of, table_of

READ_ONLY = QueueData(perm=PERM_READ)


def test_a_topic_without_an_entry_has_no_route() -> None:
    assert route_of(table_of(image(group(), ["orders"])), "payments") is None
    assert route_of(Table()) is None


def test_a_route_names_every_broker_with_an_entry_in_the_order_of_names() -> None:
    table = table_of(*(image(group(name=name), ["orders"]) for name in ("b-2", "b-10", "a-9")))
    route = route_of(table)
    assert list(route.queues) == ["a-9", "b-10", "b-2"]
    assert [found.name for found in route.groups] == ["a-9", "b-10", "b-2"]


def test_names_without_a_group_are_left_out_of_the_groups_but_not_of_the_queues() -> None:
    table = table_of(image(group(), ["orders"]))
    table.apply_group("broker-x", image(None, ["orders", "alone"]))
    route = route_of(table)
    assert list(route.queues) == ["broker-a", "broker-x"]
    assert [found.name for found in route.groups] == ["broker-a"]
    assert route_of(table, "alone") is None


def test_a_group_left_empty_appears_without_addresses() -> None:
    route = route_of(table_of(image(group({}, acting_master=True), ["orders"])), acting=True)
    assert route.groups[0].addresses == {}


def test_filters_are_looked_up_by_the_cluster_of_the_group() -> None:
    table = table_of(image(group({0: A, 1: B}, cluster="west"), ["orders"]))
    table.apply_instance(f"west/{B}", instance(B, cluster="west", filters=("f2", "f1")))
    table.apply_instance(f"east/{A}", instance(A, filters=("not mine",)))
    table.apply_instance(f"west/{A}", instance(A, cluster="west"))
    assert route_of(table).filters == {B: ("f2", "f1")}


def test_mappings_of_a_topic_show_for_every_host_even_one_without_a_group() -> None:
    table = table_of(image(group(), ["orders"], mappings={"orders": mapping()}))
    table.apply_group("a-host", image(None, mappings={"orders": mapping("a-host")}))
    assert list(route_of(table).mappings) == ["a-host", "broker-a"]


def test_mappings_alone_make_no_route() -> None:
    table = table_of(image(group(), [], mappings={"orders": mapping()}))
    assert route_of(table) is None


def test_the_smallest_id_acts_for_a_lost_master_of_a_read_only_topic() -> None:
    table = table_of(image(group({2: C, 1: B}, acting_master=True), {"orders": READ_ONLY}))
    assert route_of(table, acting=True).groups[0].addresses == {0: B, 2: C}
    assert table.groups["broker-a"].addresses == {1: B, 2: C}, "only the answer says so"
    assert routes.build_cluster_info(table).groups[0].addresses == {1: B, 2: C}
    assert routes.build_member_group(table, "east", "broker-a").addresses == {1: B, 2: C}


def test_there_is_no_acting_master_while_the_entry_is_writable() -> None:
    table = table_of(image(group({1: B}, acting_master=True), ["orders"]))
    assert route_of(table, acting=True).groups[0].addresses == {1: B}


def test_there_is_no_acting_master_without_the_setting_or_the_flag_of_the_group() -> None:
    wants = table_of(image(group({1: B}, acting_master=True), {"orders": READ_ONLY}))
    assert route_of(wants, acting=False).groups[0].addresses == {1: B}
    refuses = table_of(image(group({1: B}), {"orders": READ_ONLY}))
    assert route_of(refuses, acting=True).groups[0].addresses == {1: B}


def test_a_present_master_is_not_replaced() -> None:
    table = table_of(image(group({0: A, 1: B}, acting_master=True), {"orders": READ_ONLY}))
    assert route_of(table, acting=True).groups[0].addresses == {0: A, 1: B}


def test_the_topic_of_a_group_shows_its_true_addresses() -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    table = table_of(image(group({1: B}, acting_master=True), {topic: READ_ONLY}))
    assert route_of(table, topic, acting=True).groups[0].addresses == {1: B}


def test_the_order_configuration_is_added_when_enabled_and_present() -> None:
    table = table_of(image(group(), ["orders", "payments"]))
    table.apply_kv(ORDER_TOPIC_NAMESPACE, {"orders": "broker-a:8"})
    assert route_of(table, order=True).order_conf == "broker-a:8"
    assert route_of(table, order=False).order_conf is None
    assert route_of(table, "payments", order=True).order_conf is None


def test_a_broker_group_has_the_cluster_of_the_request() -> None:
    table = table_of(image(group({1: B, 0: A})))
    found = routes.build_member_group(table, "elsewhere", "broker-a")
    assert (found.cluster, found.addresses) == ("elsewhere", {0: A, 1: B})
    assert routes.build_member_group(table, "y", "x").addresses == {}


def test_cluster_info_holds_empty_groups_and_names_without_a_group() -> None:
    table = table_of(image(group({}, name="b-empty")), image(group(), clusters=["west", "east"]))
    table.apply_group("b-ghost", image(None, clusters=["east"]))
    info = routes.build_cluster_info(table)
    assert [found.name for found in info.groups] == ["b-empty", "broker-a"]
    assert info.clusters == {"east": ("b-empty", "b-ghost", "broker-a"), "west": ("broker-a",)}


def test_all_topics_with_an_entry_are_listed_even_without_a_group() -> None:
    table = table_of(image(group(), ["orders", "a"], mappings={"mapped": mapping()}))
    table.apply_group("broker-x", image(None, ["ghostly"]))
    assert routes.list_topics(table).topics == ("a", "ghostly", "orders")


def test_topics_of_a_cluster_are_those_of_the_names_listed_under_it() -> None:
    table = table_of(
        image(group(), ["orders", "both"], clusters=["east", "west"]),
        image(group(name="broker-b", cluster="west"), ["payments", "both"]),
    )
    assert routes.list_topics_of_cluster(table, "west").topics == ("both", "orders", "payments")
    assert routes.list_topics_of_cluster(table, "east").topics == ("both", "orders")
    assert routes.list_topics_of_cluster(table, "north").topics == ()


def test_the_system_list_names_clusters_brokers_and_the_address_of_one() -> None:
    table = table_of(image(group({}, name="a-empty")), image(group({2: C, 1: B})))
    listed = routes.list_system_topics(table)
    assert listed.topics == ("a-empty", "broker-a", "east")
    assert listed.broker_address == B
    assert routes.list_system_topics(Table()) == routes.TopicList((), None)


def test_unit_topics_are_listed_by_the_flags_of_the_first_entry() -> None:
    queues = {f"flags-{flags}": QueueData(flags=flags) for flags in range(4)}
    later = {topic: QueueData(flags=0) for topic in queues}
    table = table_of(image(group(), queues), image(group(name="z-later"), later))
    assert routes.list_unit_topics(table).topics == ("flags-1", "flags-3")
    assert routes.list_unit_subscription_topics(table).topics == ("flags-2", "flags-3")
    assert routes.list_unit_subscription_topics_without_unit(table).topics == ("flags-2",)
