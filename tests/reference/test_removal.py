"""The reference model removes and deletes as RocketMQ does, and by incarnation where Routebook is stricter."""

import pytest

from routebook.model.broker import QueueData
from tests.reference.build import CLUSTER, A, B, C, ClockedRegistry, mapping, topics, version


@pytest.fixture
def registry() -> ClockedRegistry:
    return ClockedRegistry()


def test_removing_the_last_address_removes_group_topics_and_cluster(registry: ClockedRegistry) -> None:
    registry.add(A, filters=("x",), mappings={"orders": mapping()})
    registry.remove(A)
    assert (registry.groups, registry.topics, registry.instances, registry.filters, registry.clusters) == (
        {},
        {},
        {},
        {},
        {},
    )
    assert registry.mappings != {}


def test_removal_is_by_address(registry: ClockedRegistry) -> None:
    registry.add(A)
    assert registry.remove(B)
    assert registry.seats() == {0: A}


def test_a_request_with_another_cluster_keeps_the_instance_and_the_clusters_list(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.remove(A, cluster="west")
    assert registry.groups == {}
    assert registry.clusters == {CLUSTER: {"broker-a"}}
    assert set(registry.instances) == {(CLUSTER, A)}


def test_removing_the_master_of_an_acting_group_makes_its_topics_read_only(registry: ClockedRegistry) -> None:
    registry.add(A, 0, acting_master=True)
    registry.add(B, 1, acting_master=True)
    registry.remove(A)
    assert registry.perm() == 4


def test_removing_the_master_of_another_group_keeps_the_write_permission(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    registry.add(B, 1)
    registry.remove(A)
    assert registry.perm() == 6


def test_a_stale_incarnation_removes_nothing(registry: ClockedRegistry) -> None:
    stale = registry.add(A).incarnation
    registry.remove(A)
    registry.add(A)
    assert not registry.remove(A, incarnation=stale)
    assert registry.seats() == {0: A}


def test_an_incarnation_without_an_instance_removes_the_seat(registry: ClockedRegistry) -> None:
    stale = registry.add(A).incarnation
    del registry.instances[CLUSTER, A]
    assert registry.remove(A, incarnation=stale)
    assert registry.groups == {}


def test_any_unregistration_removes_the_empty_group_of_a_refused_broker(registry: ClockedRegistry) -> None:
    registry.add(A, topics=topics("orders"))
    registry.remove(A)
    assert (registry.groups, registry.clusters) == ({}, {})


def test_a_heartbeat_extends_the_deadline_and_creates_nothing(registry: ClockedRegistry) -> None:
    assert not registry.heartbeat(CLUSTER, A)
    registry.add(A, timeout_ms=1000)
    registry.clock.ms += 1000
    assert registry.heartbeat(CLUSTER, A)
    registry.clock.ms += 1000
    assert registry.due() == []
    registry.clock.ms += 1
    assert registry.due() == [(CLUSTER, A)]


def test_only_instances_that_are_due_expire(registry: ClockedRegistry) -> None:
    registry.add(A, timeout_ms=1000)
    registry.add(B, 1)
    registry.clock.ms += 1001
    assert registry.expire([(CLUSTER, A), (CLUSTER, B)]) == [(CLUSTER, A)]
    assert registry.seats() == {1: B}


def test_an_expired_instance_without_a_seat_is_removed(registry: ClockedRegistry) -> None:
    registry.add(A, timeout_ms=1000)
    registry.add(B, 0)
    registry.clock.ms += 1001
    registry.expire(registry.due())
    assert set(registry.instances) == {(CLUSTER, B)}
    assert registry.seats() == {0: B}


def test_a_seat_with_an_instance_in_the_groups_cluster_outlives_that_in_another_cluster(
    registry: ClockedRegistry,
) -> None:
    registry.add(A)
    registry.add(A, cluster="west", timeout_ms=1000)
    registry.clock.ms += 1001
    registry.expire(registry.due())
    assert registry.seats() == {0: A}
    assert set(registry.instances) == {(CLUSTER, A)}


def test_a_seat_with_an_instance_only_in_another_cluster_is_removed_with_it(registry: ClockedRegistry) -> None:
    registry.add(B, 1)
    registry.add(A, 0, cluster="west", timeout_ms=1000)
    registry.clock.ms += 1001
    registry.expire(registry.due())
    assert registry.seats() == {1: B}


def test_an_expired_master_of_an_acting_group_makes_its_topics_read_only(registry: ClockedRegistry) -> None:
    registry.add(A, 0, acting_master=True, timeout_ms=1000)
    registry.add(B, 1, acting_master=True)
    registry.clock.ms += 1001
    registry.expire(registry.due())
    assert registry.perm() == 4


def test_a_topic_is_deleted_everywhere_or_for_the_brokers_of_one_cluster(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(B, broker="broker-b", cluster="west")
    assert registry.delete_topic("orders", "west") == 1
    assert set(registry.topics["orders"]) == {"broker-a"}
    assert registry.delete_topic("orders", "nowhere") == 0
    assert registry.delete_topic("orders") == 1
    assert "orders" not in registry.topics


def test_a_broker_name_in_two_clusters_is_affected_through_either(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(C, 2, cluster="west")
    assert registry.delete_topic("orders", "west") == 1


def test_adding_write_permission_sets_read_and_write_exactly(registry: ClockedRegistry) -> None:
    registry.add(A, topics=topics("orders", "payments", perm=7))
    assert registry.set_write_permission("broker-a", writable=False) == 2
    assert registry.perm() == 5
    assert registry.set_write_permission("broker-a", writable=True) == 2
    assert registry.perm() == 6
    assert registry.set_write_permission("stranger", writable=True) == 0


def test_a_new_topic_is_registered_only_if_all_brokers_are_known(registry: ClockedRegistry) -> None:
    registry.add(A)
    assert registry.register_topic("new", {"broker-a": QueueData(), "stranger": QueueData()}) == []
    assert "new" not in registry.topics
    assert registry.register_topic("new", {"broker-a": QueueData()}) == ["broker-a"]
    assert registry.topics["new"]["broker-a"].by_request


def test_a_known_topic_is_registered_up_to_the_first_unknown_broker(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(B, broker="broker-b")
    queues = {"broker-a": QueueData(1, 1), "stranger": QueueData(2, 2), "broker-b": QueueData(3, 3)}
    assert registry.register_topic("orders", queues) == ["broker-a"]
    assert registry.topics["orders"]["broker-a"] == QueueData(1, 1, by_request=True)
    assert registry.topics["orders"]["broker-b"] == QueueData()


def test_a_registered_topic_is_replaced_by_the_next_changed_registration(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.register_topic("orders", {"broker-a": QueueData(1, 1)})
    registry.add(A)
    assert registry.topics["orders"]["broker-a"].read_queues == 1
    registry.add(A, data_version=version(1))
    assert registry.topics["orders"]["broker-a"] == QueueData()


def test_an_empty_key_value_namespace_remains(registry: ClockedRegistry) -> None:
    registry.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    assert registry.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert not registry.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert registry.kv == {"ORDER_TOPIC_CONFIG": {}}
