"""The reference removes, deletes and forgets as RocketMQ does, by incarnation where Routebook is stricter."""

import pytest

from routebook.model.topic import QueueData
from tests.reference.build import CLUSTER, A, B, Book, C, mapping, topics, version


@pytest.fixture
def book() -> Book:
    return Book()


def test_the_last_address_takes_group_topics_and_cluster_along(book: Book) -> None:
    book.says(A, filters=("x",), mappings={"orders": mapping()})
    book.leaves(A)
    assert (book.groups, book.topics, book.live, book.filters, book.clusters) == ({}, {}, {}, {}, {})
    assert book.mappings != {}


def test_removal_is_by_address(book: Book) -> None:
    book.says(A)
    assert book.leaves(B)
    assert book.seats() == {0: A}


def test_a_wrong_cluster_leaves_live_and_cluster_entry_behind(book: Book) -> None:
    book.says(A)
    book.leaves(A, cluster="west")
    assert book.groups == {}
    assert book.clusters == {CLUSTER: {"broker-a"}}
    assert set(book.live) == {(CLUSTER, A)}


def test_a_lost_master_of_an_acting_group_makes_its_topics_read_only(book: Book) -> None:
    book.says(A, 0, acting_master=True)
    book.says(B, 1, acting_master=True)
    book.leaves(A)
    assert book.perm() == 4


def test_a_lost_master_of_any_other_group_does_not(book: Book) -> None:
    book.says(A, 0)
    book.says(B, 1)
    book.leaves(A)
    assert book.perm() == 6


def test_a_stale_incarnation_removes_nothing(book: Book) -> None:
    stale = book.says(A).incarnation
    book.leaves(A)
    book.says(A)
    assert not book.leaves(A, incarnation=stale)
    assert book.seats() == {0: A}


def test_of_a_stay_that_is_over_the_seat_elsewhere_goes(book: Book) -> None:
    stale = book.says(A).incarnation
    del book.live[CLUSTER, A]
    assert book.leaves(A, incarnation=stale)
    assert book.groups == {}


def test_the_emptied_group_of_a_refused_broker_goes_with_any_unregistration(book: Book) -> None:
    book.says(A, topics=topics("orders"))
    book.leaves(A)
    assert (book.groups, book.clusters) == ({}, {})


def test_a_heartbeat_keeps_alive_and_makes_nothing(book: Book) -> None:
    assert not book.heartbeat(CLUSTER, A)
    book.says(A, timeout_ms=1000)
    book.clock.ms += 1000
    assert book.heartbeat(CLUSTER, A)
    book.clock.ms += 1000
    assert book.due() == []
    book.clock.ms += 1
    assert book.due() == [(CLUSTER, A)]


def test_only_what_is_due_expires(book: Book) -> None:
    book.says(A, timeout_ms=1000)
    book.says(B, 1)
    book.clock.ms += 1001
    assert book.expire([(CLUSTER, A), (CLUSTER, B)]) == [(CLUSTER, A)]
    assert book.seats() == {1: B}


def test_an_expired_entry_without_a_seat_is_dropped(book: Book) -> None:
    book.says(A, timeout_ms=1000)
    book.says(B, 0)
    book.clock.ms += 1001
    book.expire(book.due())
    assert set(book.live) == {(CLUSTER, B)}
    assert book.seats() == {0: B}


def test_a_seat_that_the_groups_own_cluster_hears_from_outlives_the_other_clusters_entry(book: Book) -> None:
    book.says(A)
    book.says(A, cluster="west", timeout_ms=1000)
    book.clock.ms += 1001
    book.expire(book.due())
    assert book.seats() == {0: A}
    assert set(book.live) == {(CLUSTER, A)}


def test_a_seat_that_only_another_cluster_spoke_for_goes_with_its_entry(book: Book) -> None:
    book.says(B, 1)
    book.says(A, 0, cluster="west", timeout_ms=1000)
    book.clock.ms += 1001
    book.expire(book.due())
    assert book.seats() == {1: B}


def test_an_expired_master_of_an_acting_group_makes_its_topics_read_only(book: Book) -> None:
    book.says(A, 0, acting_master=True, timeout_ms=1000)
    book.says(B, 1, acting_master=True)
    book.clock.ms += 1001
    book.expire(book.due())
    assert book.perm() == 4


def test_a_topic_is_deleted_everywhere_or_in_the_brokers_a_cluster_names(book: Book) -> None:
    book.says(A)
    book.says(B, broker="broker-b", cluster="west")
    assert book.delete_topic("orders", "west") == 1
    assert set(book.topics["orders"]) == {"broker-a"}
    assert book.delete_topic("orders", "nowhere") == 0
    assert book.delete_topic("orders") == 1
    assert "orders" not in book.topics


def test_a_name_listed_in_two_clusters_is_hit_through_either(book: Book) -> None:
    book.says(A)
    book.says(C, 2, cluster="west")
    assert book.delete_topic("orders", "west") == 1


def test_adding_write_permission_sets_read_and_write_exactly(book: Book) -> None:
    book.says(A, topics=topics("orders", "payments", perm=7))
    assert book.set_write_permission("broker-a", writable=False) == 2
    assert book.perm() == 5
    assert book.set_write_permission("broker-a", writable=True) == 2
    assert book.perm() == 6
    assert book.set_write_permission("stranger", writable=True) == 0


def test_a_new_topic_is_registered_only_with_all_brokers_known(book: Book) -> None:
    book.says(A)
    assert book.register_topic("new", {"broker-a": QueueData(), "stranger": QueueData()}) == []
    assert "new" not in book.topics
    assert book.register_topic("new", {"broker-a": QueueData()}) == ["broker-a"]
    assert book.topics["new"]["broker-a"].by_request


def test_a_known_topic_is_registered_up_to_the_first_unknown_broker(book: Book) -> None:
    book.says(A)
    book.says(B, broker="broker-b")
    queues = {"broker-a": QueueData(1, 1), "stranger": QueueData(2, 2), "broker-b": QueueData(3, 3)}
    assert book.register_topic("orders", queues) == ["broker-a"]
    assert book.topics["orders"]["broker-a"] == QueueData(1, 1, by_request=True)
    assert book.topics["orders"]["broker-b"] == QueueData()


def test_a_registered_topic_lives_until_the_next_changed_registration(book: Book) -> None:
    book.says(A)
    book.register_topic("orders", {"broker-a": QueueData(1, 1)})
    book.says(A)
    assert book.topics["orders"]["broker-a"].read_queues == 1
    book.says(A, data_version=version(1))
    assert book.topics["orders"]["broker-a"] == QueueData()


def test_an_emptied_key_value_name_space_stays(book: Book) -> None:
    book.put_kv("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    assert book.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert not book.delete_kv("ORDER_TOPIC_CONFIG", "orders")
    assert book.kv == {"ORDER_TOPIC_CONFIG": {}}
