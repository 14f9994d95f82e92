"""The reference removes, deletes and forgets as RocketMQ does, by incarnation where Routebook is stricter."""

import pytest

from routebook.model.topic import QueueData
from tests.reference.build import CLUSTER, A, B, C, Namespace, mapping, topics, version


@pytest.fixture
def namespace() -> Namespace:
    return Namespace()


def test_the_last_address_takes_group_topics_and_cluster_along(namespace: Namespace) -> None:
    namespace.says(A, filters=("x",), mappings={"orders": mapping()})
    namespace.leaves(A)
    assert (namespace.groups, namespace.topics, namespace.live, namespace.filters, namespace.clusters) == (
        {},
        {},
        {},
        {},
        {},
    )
    assert namespace.mappings != {}


def test_removal_is_by_address(namespace: Namespace) -> None:
    namespace.says(A)
    assert namespace.leaves(B)
    assert namespace.seats() == {0: A}


def test_a_wrong_cluster_leaves_live_and_cluster_entry_behind(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.leaves(A, cluster="west")
    assert namespace.groups == {}
    assert namespace.clusters == {CLUSTER: {"broker-a"}}
    assert set(namespace.live) == {(CLUSTER, A)}


def test_a_lost_master_of_an_acting_group_makes_its_topics_read_only(namespace: Namespace) -> None:
    namespace.says(A, 0, acting_master=True)
    namespace.says(B, 1, acting_master=True)
    namespace.leaves(A)
    assert namespace.perm() == 4


def test_a_lost_master_of_any_other_group_does_not(namespace: Namespace) -> None:
    namespace.says(A, 0)
    namespace.says(B, 1)
    namespace.leaves(A)
    assert namespace.perm() == 6


def test_a_stale_incarnation_removes_nothing(namespace: Namespace) -> None:
    stale = namespace.says(A).incarnation
    namespace.leaves(A)
    namespace.says(A)
    assert not namespace.leaves(A, incarnation=stale)
    assert namespace.seats() == {0: A}


def test_of_a_stay_that_is_over_the_seat_elsewhere_goes(namespace: Namespace) -> None:
    stale = namespace.says(A).incarnation
    del namespace.live[CLUSTER, A]
    assert namespace.leaves(A, incarnation=stale)
    assert namespace.groups == {}


def test_the_emptied_group_of_a_refused_broker_goes_with_any_unregistration(namespace: Namespace) -> None:
    namespace.says(A, topics=topics("orders"))
    namespace.leaves(A)
    assert (namespace.groups, namespace.clusters) == ({}, {})


def test_a_heartbeat_keeps_alive_and_makes_nothing(namespace: Namespace) -> None:
    assert not namespace.heartbeat(CLUSTER, A)
    namespace.says(A, timeout_ms=1000)
    namespace.clock.ms += 1000
    assert namespace.heartbeat(CLUSTER, A)
    namespace.clock.ms += 1000
    assert namespace.due() == []
    namespace.clock.ms += 1
    assert namespace.due() == [(CLUSTER, A)]


def test_only_what_is_due_expires(namespace: Namespace) -> None:
    namespace.says(A, timeout_ms=1000)
    namespace.says(B, 1)
    namespace.clock.ms += 1001
    assert namespace.expire([(CLUSTER, A), (CLUSTER, B)]) == [(CLUSTER, A)]
    assert namespace.seats() == {1: B}


def test_an_expired_entry_without_a_seat_is_dropped(namespace: Namespace) -> None:
    namespace.says(A, timeout_ms=1000)
    namespace.says(B, 0)
    namespace.clock.ms += 1001
    namespace.expire(namespace.due())
    assert set(namespace.live) == {(CLUSTER, B)}
    assert namespace.seats() == {0: B}


def test_a_seat_that_the_groups_own_cluster_hears_from_outlives_the_other_clusters_entry(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(A, cluster="west", timeout_ms=1000)
    namespace.clock.ms += 1001
    namespace.expire(namespace.due())
    assert namespace.seats() == {0: A}
    assert set(namespace.live) == {(CLUSTER, A)}


def test_a_seat_that_only_another_cluster_spoke_for_goes_with_its_entry(namespace: Namespace) -> None:
    namespace.says(B, 1)
    namespace.says(A, 0, cluster="west", timeout_ms=1000)
    namespace.clock.ms += 1001
    namespace.expire(namespace.due())
    assert namespace.seats() == {1: B}


def test_an_expired_master_of_an_acting_group_makes_its_topics_read_only(namespace: Namespace) -> None:
    namespace.says(A, 0, acting_master=True, timeout_ms=1000)
    namespace.says(B, 1, acting_master=True)
    namespace.clock.ms += 1001
    namespace.expire(namespace.due())
    assert namespace.perm() == 4


def test_a_topic_is_deleted_everywhere_or_in_the_brokers_a_cluster_names(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(B, broker="broker-b", cluster="west")
    assert namespace.delete_topic("orders", "west") == 1
    assert set(namespace.topics["orders"]) == {"broker-a"}
    assert namespace.delete_topic("orders", "nowhere") == 0
    assert namespace.delete_topic("orders") == 1
    assert "orders" not in namespace.topics


def test_a_name_listed_in_two_clusters_is_hit_through_either(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(C, 2, cluster="west")
    assert namespace.delete_topic("orders", "west") == 1


def test_adding_write_permission_sets_read_and_write_exactly(namespace: Namespace) -> None:
    namespace.says(A, topics=topics("orders", "payments", perm=7))
    assert namespace.set_write_permission("broker-a", writable=False) == 2
    assert namespace.perm() == 5
    assert namespace.set_write_permission("broker-a", writable=True) == 2
    assert namespace.perm() == 6
    assert namespace.set_write_permission("stranger", writable=True) == 0


def test_a_new_topic_is_registered_only_with_all_brokers_known(namespace: Namespace) -> None:
    namespace.says(A)
    assert namespace.register_topic("new", {"broker-a": QueueData(), "stranger": QueueData()}) == []
    assert "new" not in namespace.topics
    assert namespace.register_topic("new", {"broker-a": QueueData()}) == ["broker-a"]
    assert namespace.topics["new"]["broker-a"].by_request


def test_a_known_topic_is_registered_up_to_the_first_unknown_broker(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(B, broker="broker-b")
    queues = {"broker-a": QueueData(1, 1), "stranger": QueueData(2, 2), "broker-b": QueueData(3, 3)}
    assert namespace.register_topic("orders", queues) == ["broker-a"]
    assert namespace.topics["orders"]["broker-a"] == QueueData(1, 1, by_request=True)
    assert namespace.topics["orders"]["broker-b"] == QueueData()


def test_a_registered_topic_lives_until_the_next_changed_registration(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.register_topic("orders", {"broker-a": QueueData(1, 1)})
    namespace.says(A)
    assert namespace.topics["orders"]["broker-a"].read_queues == 1
    namespace.says(A, data_version=version(1))
    assert namespace.topics["orders"]["broker-a"] == QueueData()


def test_an_emptied_key_value_name_space_stays(namespace: Namespace) -> None:
    namespace.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    assert namespace.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert not namespace.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert namespace.kv == {"ORDER_TOPIC_CONFIG": {}}
