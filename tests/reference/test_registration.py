"""The reference follows RocketMQ's table of consequences of a registration, row by row."""

import pytest

from tests.reference.build import CLUSTER, A, B, C, Namespace, mapping, topics, version


@pytest.fixture
def namespace() -> Namespace:
    return Namespace()


def test_a_slave_is_told_its_master(namespace: Namespace) -> None:
    namespace.says(A, 0)
    answer = namespace.says(B, 1)
    assert namespace.seats() == {0: A, 1: B}
    assert (answer.master_address, answer.master_ha_address) == (A, "127.0.0.1:10912")


def test_a_master_is_told_nobody(namespace: Namespace) -> None:
    assert namespace.says(A, 0).master_address == ""


def test_a_slave_without_a_live_master_in_its_own_cluster_is_told_nobody(namespace: Namespace) -> None:
    namespace.says(A, 0)
    assert namespace.says(B, 1, cluster="west").master_address == ""


def test_a_slave_before_its_master_is_prime_and_publishes_with_write_permission(namespace: Namespace) -> None:
    assert namespace.says(B, 1).master_address == ""
    assert namespace.perm() == 6


def test_a_prime_slave_of_an_acting_group_publishes_without_write_permission(namespace: Namespace) -> None:
    namespace.says(B, 1, acting_master=True)
    assert namespace.perm() == 4


def test_an_old_slave_publishes_nothing(namespace: Namespace) -> None:
    namespace.says(B, 1, acting_master=None)
    assert namespace.topics == {}
    assert (CLUSTER, B) in namespace.live


def test_a_slave_that_is_not_the_smallest_publishes_nothing(namespace: Namespace) -> None:
    namespace.says(B, 1)
    namespace.says(C, 2, topics=topics("orders", "others"), data_version=version(9))
    assert set(namespace.topics) == {"orders", "payments"}


def test_a_slave_takes_the_seat_of_a_master_that_is_gone(namespace: Namespace) -> None:
    namespace.says(A, 0)
    namespace.says(B, 1)
    namespace.leaves(A)
    namespace.says(B, 0)
    assert namespace.seats() == {0: B}


@pytest.mark.parametrize(("state", "seats", "outcome"), [(0, {0: B}, "accepted"), (1, {0: A}, "turned-down")])
def test_a_slave_takes_the_seat_of_a_live_master_unless_that_is_ahead(
    namespace: Namespace, state: int, seats: dict[int, str], outcome: str
) -> None:
    namespace.says(A, 0, data_version=version(state=state))
    namespace.says(B, 1)
    assert namespace.says(B, 0, data_version=version(99)).outcome == outcome
    assert namespace.seats() == seats
    namespace.says(A, 1) if state == 0 else None
    assert namespace.seats() == (seats | {1: A} if state == 0 else seats)


def test_turned_down_the_live_entry_goes_and_the_filters_stay(namespace: Namespace) -> None:
    namespace.says(A, 0, data_version=version(state=1))
    namespace.says(B, 1, filters=("x",))
    namespace.says(B, 0)
    assert (CLUSTER, B) not in namespace.live
    assert namespace.filters == {(CLUSTER, B): ("x",)}


def test_turned_down_the_flags_are_overwritten_all_the_same(namespace: Namespace) -> None:
    namespace.says(A, 0, data_version=version(state=1), acting_master=True, zone="az-1")
    namespace.says(B, 0, zone=None)
    assert (namespace.groups["broker-a"].acting_master, namespace.groups["broker-a"].zone) == (False, None)


def test_without_a_live_entry_the_holder_loses_its_seat_whatever_its_version(namespace: Namespace) -> None:
    namespace.says(A, 0, data_version=version(state=9))
    del namespace.live[CLUSTER, A]
    namespace.says(B, 0)
    assert namespace.seats() == {0: B}


def test_only_the_live_entry_of_the_speakers_cluster_defends_a_seat(namespace: Namespace) -> None:
    namespace.says(A, 0, data_version=version(state=9))
    namespace.says(B, 0, cluster="west")
    assert namespace.seats() == {0: B}


def test_an_old_master_comes_back_as_slave(namespace: Namespace) -> None:
    namespace.says(A, 0)
    namespace.says(B, 0)
    namespace.says(A, 1)
    assert namespace.seats() == {0: B, 1: A}


def test_a_restart_on_another_port_replaces_the_address_and_leaves_its_live_entry(namespace: Namespace) -> None:
    namespace.says(A, 0)
    namespace.says(B, 0)
    assert namespace.seats() == {0: B}
    assert set(namespace.live) == {(CLUSTER, A), (CLUSTER, B)}


def test_the_same_again_changes_nothing_but_the_time(namespace: Namespace) -> None:
    incarnation = namespace.says(A).incarnation
    wanted = namespace.topics["orders"]["broker-a"]
    namespace.clock.ms += 30_000
    assert namespace.says(A, topics=topics("orders", "payments", read_queues=3)).incarnation == incarnation
    assert namespace.topics["orders"]["broker-a"] == wanted
    assert namespace.live[CLUSTER, A].deadline_ms == namespace.clock.ms + 120_000


def test_any_other_version_applies_the_topics_even_an_older_one(namespace: Namespace) -> None:
    namespace.says(A, data_version=version(5))
    namespace.says(A, data_version=version(4), topics=topics("orders", "payments", read_queues=3))
    assert namespace.topics["orders"]["broker-a"].read_queues == 3


def test_no_version_applies_the_topics_each_time(namespace: Namespace) -> None:
    namespace.says(A, data_version=None)
    namespace.says(A, data_version=None, topics=topics("orders", read_queues=3))
    assert namespace.topics["orders"]["broker-a"].read_queues == 3


def test_a_wiped_permission_stays_wiped_until_a_new_version(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.set_write_permission("broker-a", writable=False)
    namespace.says(A)
    assert namespace.perm() == 4
    namespace.says(A, data_version=version(1))
    assert namespace.perm() == 6


def test_a_deleted_topic_is_back_with_the_same_version(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.delete_topic("orders")
    namespace.says(A)
    assert set(namespace.topics) == {"orders", "payments"}


def test_a_mapping_stays_for_ever(namespace: Namespace) -> None:
    namespace.says(A, mappings={"orders": mapping()})
    namespace.says(A, data_version=version(1))
    namespace.leaves(A)
    assert namespace.mappings == {"orders": {"broker-a": mapping()}}


def test_an_unchanged_version_brings_no_mapping(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(A, mappings={"orders": mapping()})
    assert namespace.mappings == {}


def test_filters_are_left_set_and_removed(namespace: Namespace) -> None:
    namespace.says(A, filters=("x", "y"))
    namespace.says(A, filters=None)
    assert namespace.filters == {(CLUSTER, A): ("x", "y")}
    namespace.says(A, filters=())
    assert namespace.filters == {}


def test_topics_merge(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(A, data_version=version(1), topics=topics("new"))
    assert set(namespace.topics) == {"orders", "payments", "new"}


def test_one_topic_from_a_stranger_is_refused_and_leaves_its_mark(namespace: Namespace) -> None:
    assert namespace.says(A, topics=topics("orders")).outcome == "refused"
    assert namespace.seats() == {}
    assert namespace.clusters == {CLUSTER: {"broker-a"}}
    assert namespace.topics == {}
    assert namespace.live == {}


@pytest.mark.parametrize("names", [(), ("orders", "payments")])
def test_none_or_two_topics_from_a_stranger_pass(namespace: Namespace, names: tuple[str, ...]) -> None:
    assert namespace.says(A, topics=topics(*names)).outcome == "accepted"


def test_a_complete_table_of_one_topic_passes(namespace: Namespace) -> None:
    assert namespace.says(A, topics=topics("orders"), full=True).outcome == "accepted"


def test_a_known_broker_refused_under_another_id_has_lost_its_seat(namespace: Namespace) -> None:
    namespace.says(A, 1)
    assert namespace.says(A, 0, topics=topics("orders")).outcome == "refused"
    assert namespace.seats() == {}
    assert (CLUSTER, A) in namespace.live


def test_a_returning_master_gets_its_write_permission_back_with_an_unchanged_version(namespace: Namespace) -> None:
    namespace.says(A, 0, acting_master=True)
    namespace.says(B, 1, acting_master=True)
    namespace.leaves(A)
    assert namespace.perm() == 4
    namespace.says(A, 0, acting_master=True)
    assert namespace.perm() == 6


def test_the_group_keeps_its_first_cluster(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(B, 1, cluster="west")
    assert namespace.groups["broker-a"].cluster == CLUSTER
    assert namespace.clusters == {CLUSTER: {"broker-a"}, "west": {"broker-a"}}


def test_the_option_deletes_topics_that_are_not_keys_of_the_table() -> None:
    namespace = Namespace(delete_topic_with_broker_registration=True)
    namespace.says(A)
    namespace.says(B, broker="broker-b")
    namespace.says(A, topics=topics("orders"))
    assert set(namespace.topics["payments"]) == {"broker-b"}
    namespace.says(A, topics=topics("orders"), table_keys=frozenset({"another spelling"}))
    assert "broker-a" in namespace.topics["orders"]


def test_the_option_spares_registrations_with_mappings() -> None:
    namespace = Namespace(delete_topic_with_broker_registration=True)
    namespace.says(A)
    namespace.says(A, topics=topics("orders"), mappings={"orders": mapping()})
    assert "broker-a" in namespace.topics["payments"]


def test_a_replacing_registration_removes_what_it_does_not_name(namespace: Namespace) -> None:
    namespace.says(A)
    namespace.says(A, topics=topics("orders"), replace_topics=True)
    assert set(namespace.topics) == {"orders"}
