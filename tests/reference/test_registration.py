"""The reference model has the effects of a registration that RocketMQ has."""

import pytest

from tests.reference.build import CLUSTER, A, B, C, ClockedRegistry, mapping, topics, version


@pytest.fixture
def registry() -> ClockedRegistry:
    return ClockedRegistry()


def test_the_answer_to_a_slave_names_its_master(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    answer = registry.add(B, 1)
    assert registry.seats() == {0: A, 1: B}
    assert (answer.master_address, answer.master_ha_address) == (A, "127.0.0.1:10912")


def test_the_answer_to_a_master_names_no_master(registry: ClockedRegistry) -> None:
    assert registry.add(A, 0).master_address == ""


def test_the_answer_names_no_master_of_another_cluster(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    assert registry.add(B, 1, cluster="west").master_address == ""


def test_a_slave_without_master_publishes_topics_with_write_permission(registry: ClockedRegistry) -> None:
    assert registry.add(B, 1).master_address == ""
    assert registry.perm() == 6


def test_an_acting_master_publishes_topics_without_write_permission(registry: ClockedRegistry) -> None:
    registry.add(B, 1, acting_master=True)
    assert registry.perm() == 4


def test_a_slave_of_an_older_release_publishes_no_topics(registry: ClockedRegistry) -> None:
    registry.add(B, 1, acting_master=None)
    assert registry.topics == {}
    assert (CLUSTER, B) in registry.instances


def test_a_slave_without_the_smallest_id_publishes_no_topics(registry: ClockedRegistry) -> None:
    registry.add(B, 1)
    registry.add(C, 2, topics=topics("orders", "others"), data_version=version(9))
    assert set(registry.topics) == {"orders", "payments"}


def test_a_slave_takes_the_seat_of_a_removed_master(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    registry.add(B, 1)
    registry.remove(A)
    registry.add(B, 0)
    assert registry.seats() == {0: B}


@pytest.mark.parametrize(("state", "seats", "outcome"), [(0, {0: B}, "accepted"), (1, {0: A}, "turned-down")])
def test_a_slave_takes_the_seat_of_a_master_unless_its_state_version_is_greater(
    registry: ClockedRegistry, state: int, seats: dict[int, str], outcome: str
) -> None:
    registry.add(A, 0, data_version=version(state=state))
    registry.add(B, 1)
    assert registry.add(B, 0, data_version=version(99)).outcome == outcome
    assert registry.seats() == seats
    registry.add(A, 1) if state == 0 else None
    assert registry.seats() == (seats | {1: A} if state == 0 else seats)


def test_turning_a_registration_down_removes_the_instance_but_not_its_filters(registry: ClockedRegistry) -> None:
    registry.add(A, 0, data_version=version(state=1))
    registry.add(B, 1, filters=("x",))
    registry.add(B, 0)
    assert (CLUSTER, B) not in registry.instances
    assert registry.filters == {(CLUSTER, B): ("x",)}


def test_a_registration_that_is_turned_down_sets_the_flags_of_the_group(registry: ClockedRegistry) -> None:
    registry.add(A, 0, data_version=version(state=1), acting_master=True, zone="az-1")
    registry.add(B, 0, zone=None)
    assert (registry.groups["broker-a"].acting_master, registry.groups["broker-a"].zone) == (False, None)


def test_a_holder_without_an_instance_loses_its_seat_whatever_its_version(registry: ClockedRegistry) -> None:
    registry.add(A, 0, data_version=version(state=9))
    del registry.instances[CLUSTER, A]
    registry.add(B, 0)
    assert registry.seats() == {0: B}


def test_only_an_instance_in_the_cluster_of_the_registration_keeps_a_seat(registry: ClockedRegistry) -> None:
    registry.add(A, 0, data_version=version(state=9))
    registry.add(B, 0, cluster="west")
    assert registry.seats() == {0: B}


def test_a_former_master_returns_as_slave(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    registry.add(B, 0)
    registry.add(A, 1)
    assert registry.seats() == {0: B, 1: A}


def test_a_restart_on_another_port_replaces_the_address_but_not_the_instance(registry: ClockedRegistry) -> None:
    registry.add(A, 0)
    registry.add(B, 0)
    assert registry.seats() == {0: B}
    assert set(registry.instances) == {(CLUSTER, A), (CLUSTER, B)}


def test_a_repeated_registration_changes_only_the_deadline(registry: ClockedRegistry) -> None:
    incarnation = registry.add(A).incarnation
    wanted = registry.topics["orders"]["broker-a"]
    registry.clock.ms += 30_000
    assert registry.add(A, topics=topics("orders", "payments", read_queues=3)).incarnation == incarnation
    assert registry.topics["orders"]["broker-a"] == wanted
    assert registry.instances[CLUSTER, A].deadline_ms == registry.clock.ms + 120_000


def test_a_different_version_applies_the_topics_even_if_it_is_older(registry: ClockedRegistry) -> None:
    registry.add(A, data_version=version(5))
    registry.add(A, data_version=version(4), topics=topics("orders", "payments", read_queues=3))
    assert registry.topics["orders"]["broker-a"].read_queues == 3


def test_a_registration_without_version_always_applies_the_topics(registry: ClockedRegistry) -> None:
    registry.add(A, data_version=None)
    registry.add(A, data_version=None, topics=topics("orders", read_queues=3))
    assert registry.topics["orders"]["broker-a"].read_queues == 3


def test_a_cleared_write_permission_returns_with_a_new_version(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.set_write_permission("broker-a", writable=False)
    registry.add(A)
    assert registry.perm() == 4
    registry.add(A, data_version=version(1))
    assert registry.perm() == 6


def test_a_deleted_topic_returns_with_the_same_version(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.delete_topic("orders")
    registry.add(A)
    assert set(registry.topics) == {"orders", "payments"}


def test_a_mapping_is_never_removed(registry: ClockedRegistry) -> None:
    registry.add(A, mappings={"orders": mapping()})
    registry.add(A, data_version=version(1))
    registry.remove(A)
    assert registry.mappings == {"orders": {"broker-a": mapping()}}


def test_a_registration_with_an_unchanged_version_adds_no_mapping(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(A, mappings={"orders": mapping()})
    assert registry.mappings == {}


def test_filters_are_set_kept_and_removed(registry: ClockedRegistry) -> None:
    registry.add(A, filters=("x", "y"))
    registry.add(A, filters=None)
    assert registry.filters == {(CLUSTER, A): ("x", "y")}
    registry.add(A, filters=())
    assert registry.filters == {}


def test_topics_are_merged(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(A, data_version=version(1), topics=topics("new"))
    assert set(registry.topics) == {"orders", "payments", "new"}


def test_a_single_topic_of_an_unknown_broker_is_refused_but_the_cluster_lists_the_name(
    registry: ClockedRegistry,
) -> None:
    assert registry.add(A, topics=topics("orders")).outcome == "refused"
    assert registry.seats() == {}
    assert registry.clusters == {CLUSTER: {"broker-a"}}
    assert registry.topics == {}
    assert registry.instances == {}


@pytest.mark.parametrize("names", [(), ("orders", "payments")])
def test_no_topics_or_two_of_an_unknown_broker_are_accepted(registry: ClockedRegistry, names: tuple[str, ...]) -> None:
    assert registry.add(A, topics=topics(*names)).outcome == "accepted"


def test_a_full_table_with_a_single_topic_is_accepted(registry: ClockedRegistry) -> None:
    assert registry.add(A, topics=topics("orders"), full=True).outcome == "accepted"


def test_a_known_broker_that_is_refused_under_another_id_loses_its_seat(registry: ClockedRegistry) -> None:
    registry.add(A, 1)
    assert registry.add(A, 0, topics=topics("orders")).outcome == "refused"
    assert registry.seats() == {}
    assert (CLUSTER, A) in registry.instances


def test_a_returning_master_gets_write_permission_back_with_an_unchanged_version(registry: ClockedRegistry) -> None:
    registry.add(A, 0, acting_master=True)
    registry.add(B, 1, acting_master=True)
    registry.remove(A)
    assert registry.perm() == 4
    registry.add(A, 0, acting_master=True)
    assert registry.perm() == 6


def test_the_group_keeps_its_first_cluster(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(B, 1, cluster="west")
    assert registry.groups["broker-a"].cluster == CLUSTER
    assert registry.clusters == {CLUSTER: {"broker-a"}, "west": {"broker-a"}}


def test_the_option_deletes_topics_that_are_not_keys_of_the_registered_table() -> None:
    registry = ClockedRegistry(delete_topic_with_broker_registration=True)
    registry.add(A)
    registry.add(B, broker="broker-b")
    registry.add(A, topics=topics("orders"))
    assert set(registry.topics["payments"]) == {"broker-b"}
    registry.add(A, topics=topics("orders"), table_keys=frozenset({"another spelling"}))
    assert "broker-a" in registry.topics["orders"]


def test_the_option_does_not_apply_to_registrations_with_mappings() -> None:
    registry = ClockedRegistry(delete_topic_with_broker_registration=True)
    registry.add(A)
    registry.add(A, topics=topics("orders"), mappings={"orders": mapping()})
    assert "broker-a" in registry.topics["payments"]


def test_a_replacing_registration_removes_topics_that_it_does_not_name(registry: ClockedRegistry) -> None:
    registry.add(A)
    registry.add(A, topics=topics("orders"), replace_topics=True)
    assert set(registry.topics) == {"orders"}
