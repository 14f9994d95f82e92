"""The reference follows RocketMQ's table of consequences of a registration, row by row."""

import pytest

from tests.reference.build import CLUSTER, A, B, Book, C, mapping, topics, version


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_slave_is_told_its_master(book: Book) -> None:
    book.says(A, 0)
    answer = book.says(B, 1)
    assert book.seats() == {0: A, 1: B}
    assert (answer.master_address, answer.master_ha_address) == (A, "127.0.0.1:10912")


def test_a_master_is_told_nobody(book: Book) -> None:
    assert book.says(A, 0).master_address == ""


def test_a_slave_without_a_live_master_in_its_own_cluster_is_told_nobody(book: Book) -> None:
    book.says(A, 0)
    assert book.says(B, 1, cluster="west").master_address == ""


def test_a_slave_before_its_master_is_prime_and_publishes_with_write_permission(book: Book) -> None:
    assert book.says(B, 1).master_address == ""
    assert book.perm() == 6


def test_a_prime_slave_of_an_acting_group_publishes_without_write_permission(book: Book) -> None:
    book.says(B, 1, acting_master=True)
    assert book.perm() == 4


def test_an_old_slave_publishes_nothing(book: Book) -> None:
    book.says(B, 1, acting_master=None)
    assert book.topics == {}
    assert (CLUSTER, B) in book.live


def test_a_slave_that_is_not_the_smallest_publishes_nothing(book: Book) -> None:
    book.says(B, 1)
    book.says(C, 2, topics=topics("orders", "others"), data_version=version(9))
    assert set(book.topics) == {"orders", "payments"}


def test_a_slave_takes_the_seat_of_a_master_that_is_gone(book: Book) -> None:
    book.says(A, 0)
    book.says(B, 1)
    book.leaves(A)
    book.says(B, 0)
    assert book.seats() == {0: B}


@pytest.mark.parametrize(("state", "seats", "outcome"), [(0, {0: B}, "accepted"), (1, {0: A}, "turned-down")])
def test_a_slave_takes_the_seat_of_a_live_master_unless_that_is_ahead(
    book: Book, state: int, seats: dict[int, str], outcome: str
) -> None:
    book.says(A, 0, data_version=version(state=state))
    book.says(B, 1)
    assert book.says(B, 0, data_version=version(99)).outcome == outcome
    assert book.seats() == seats
    book.says(A, 1) if state == 0 else None
    assert book.seats() == (seats | {1: A} if state == 0 else seats)


def test_turned_down_the_live_entry_goes_and_the_filters_stay(book: Book) -> None:
    book.says(A, 0, data_version=version(state=1))
    book.says(B, 1, filters=("x",))
    book.says(B, 0)
    assert (CLUSTER, B) not in book.live
    assert book.filters == {(CLUSTER, B): ("x",)}


def test_turned_down_the_flags_are_overwritten_all_the_same(book: Book) -> None:
    book.says(A, 0, data_version=version(state=1), acting_master=True, zone="az-1")
    book.says(B, 0, zone=None)
    assert (book.groups["broker-a"].acting_master, book.groups["broker-a"].zone) == (False, None)


def test_without_a_live_entry_the_holder_loses_its_seat_whatever_its_version(book: Book) -> None:
    book.says(A, 0, data_version=version(state=9))
    del book.live[CLUSTER, A]
    book.says(B, 0)
    assert book.seats() == {0: B}


def test_only_the_live_entry_of_the_speakers_cluster_defends_a_seat(book: Book) -> None:
    book.says(A, 0, data_version=version(state=9))
    book.says(B, 0, cluster="west")
    assert book.seats() == {0: B}


def test_an_old_master_comes_back_as_slave(book: Book) -> None:
    book.says(A, 0)
    book.says(B, 0)
    book.says(A, 1)
    assert book.seats() == {0: B, 1: A}


def test_a_restart_on_another_port_replaces_the_address_and_leaves_its_live_entry(book: Book) -> None:
    book.says(A, 0)
    book.says(B, 0)
    assert book.seats() == {0: B}
    assert set(book.live) == {(CLUSTER, A), (CLUSTER, B)}


def test_the_same_again_changes_nothing_but_the_time(book: Book) -> None:
    incarnation = book.says(A).incarnation
    wanted = book.topics["orders"]["broker-a"]
    book.clock.ms += 30_000
    assert book.says(A, topics=topics("orders", "payments", read_queues=3)).incarnation == incarnation
    assert book.topics["orders"]["broker-a"] == wanted
    assert book.live[CLUSTER, A].deadline_ms == book.clock.ms + 120_000


def test_any_other_version_applies_the_topics_even_an_older_one(book: Book) -> None:
    book.says(A, data_version=version(5))
    book.says(A, data_version=version(4), topics=topics("orders", "payments", read_queues=3))
    assert book.topics["orders"]["broker-a"].read_queues == 3


def test_no_version_applies_the_topics_each_time(book: Book) -> None:
    book.says(A, data_version=None)
    book.says(A, data_version=None, topics=topics("orders", read_queues=3))
    assert book.topics["orders"]["broker-a"].read_queues == 3


def test_a_wiped_permission_stays_wiped_until_a_new_version(book: Book) -> None:
    book.says(A)
    book.set_write_permission("broker-a", writable=False)
    book.says(A)
    assert book.perm() == 4
    book.says(A, data_version=version(1))
    assert book.perm() == 6


def test_a_deleted_topic_is_back_with_the_same_version(book: Book) -> None:
    book.says(A)
    book.delete_topic("orders")
    book.says(A)
    assert set(book.topics) == {"orders", "payments"}


def test_a_mapping_stays_for_ever(book: Book) -> None:
    book.says(A, mappings={"orders": mapping()})
    book.says(A, data_version=version(1))
    book.leaves(A)
    assert book.mappings == {"orders": {"broker-a": mapping()}}


def test_an_unchanged_version_brings_no_mapping(book: Book) -> None:
    book.says(A)
    book.says(A, mappings={"orders": mapping()})
    assert book.mappings == {}


def test_filters_are_left_set_and_removed(book: Book) -> None:
    book.says(A, filters=("x", "y"))
    book.says(A, filters=None)
    assert book.filters == {(CLUSTER, A): ("x", "y")}
    book.says(A, filters=())
    assert book.filters == {}


def test_topics_merge(book: Book) -> None:
    book.says(A)
    book.says(A, data_version=version(1), topics=topics("new"))
    assert set(book.topics) == {"orders", "payments", "new"}


def test_one_topic_from_a_stranger_is_refused_and_leaves_its_mark(book: Book) -> None:
    assert book.says(A, topics=topics("orders")).outcome == "refused"
    assert book.seats() == {}
    assert book.clusters == {CLUSTER: {"broker-a"}}
    assert book.topics == {}
    assert book.live == {}


@pytest.mark.parametrize("names", [(), ("orders", "payments")])
def test_none_or_two_topics_from_a_stranger_pass(book: Book, names: tuple[str, ...]) -> None:
    assert book.says(A, topics=topics(*names)).outcome == "accepted"


def test_a_complete_table_of_one_topic_passes(book: Book) -> None:
    assert book.says(A, topics=topics("orders"), full=True).outcome == "accepted"


def test_a_known_broker_refused_under_another_id_has_lost_its_seat(book: Book) -> None:
    book.says(A, 1)
    assert book.says(A, 0, topics=topics("orders")).outcome == "refused"
    assert book.seats() == {}
    assert (CLUSTER, A) in book.live


def test_a_returning_master_gets_its_write_permission_back_with_an_unchanged_version(book: Book) -> None:
    book.says(A, 0, acting_master=True)
    book.says(B, 1, acting_master=True)
    book.leaves(A)
    assert book.perm() == 4
    book.says(A, 0, acting_master=True)
    assert book.perm() == 6


def test_the_group_keeps_its_first_cluster(book: Book) -> None:
    book.says(A)
    book.says(B, 1, cluster="west")
    assert book.groups["broker-a"].cluster == CLUSTER
    assert book.clusters == {CLUSTER: {"broker-a"}, "west": {"broker-a"}}


def test_the_option_deletes_topics_that_are_not_keys_of_the_table() -> None:
    book = Book(delete_topic_with_broker_registration=True)
    book.says(A)
    book.says(B, broker="broker-b")
    book.says(A, topics=topics("orders"))
    assert set(book.topics["payments"]) == {"broker-b"}
    book.says(A, topics=topics("orders"), table_keys=frozenset({"another spelling"}))
    assert "broker-a" in book.topics["orders"]


def test_the_option_spares_registrations_with_mappings() -> None:
    book = Book(delete_topic_with_broker_registration=True)
    book.says(A)
    book.says(A, topics=topics("orders"), mappings={"orders": mapping()})
    assert "broker-a" in book.topics["payments"]


def test_a_replacing_registration_removes_what_it_does_not_name(book: Book) -> None:
    book.says(A)
    book.says(A, topics=topics("orders"), replace_topics=True)
    assert set(book.topics) == {"orders"}
