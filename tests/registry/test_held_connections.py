"""What a worker knows of its connections, without a store."""

from routebook.registry.sessions import Ended, HeldConnections
from tests.support.fake_connection import FakeConnection

M, N = "east/127.0.0.1:10911", "east/127.0.0.2:10911"


def test_the_end_of_the_only_connection_ends_each_instance_it_carried() -> None:
    held, one = HeldConnections(), FakeConnection()
    held.bind(one, M, "a", 1)
    held.bind(one, N, "b", 2)
    assert held.drop(one) == [Ended(M, "a", 1), Ended(N, "b", 2)]
    assert (len(held), held.carriers(), held.drop(one)) == (0, [], [])


def test_an_instance_lives_on_with_its_other_connection_and_ends_with_the_highest_stamp() -> None:
    held, one, two = HeldConnections(), FakeConnection(), FakeConnection()
    held.bind(one, M, "a", 1)
    held.bind(two, M, "a", 2)
    assert held.drop(two) == []
    assert held.drop(one) == [Ended(M, "a", 2)]


def test_a_new_stay_is_carried_by_the_connection_that_brought_it_alone() -> None:
    held, one, two = HeldConnections(), FakeConnection(), FakeConnection()
    held.bind(one, M, "a", 1)
    held.bind(one, N, "n", 2)
    held.bind(two, M, "b", 3)
    assert (held.incarnation(one, M), held.incarnation(two, M)) == ("", "b")
    assert held.carriers_of(M, "a") == []
    assert held.drop(one) == [Ended(N, "n", 2)]
    assert held.drop(two) == [Ended(M, "b", 3)]


def test_what_may_have_been_opened_is_carried_without_a_name() -> None:
    held, one = HeldConnections(), FakeConnection()
    held.bind(one, M, "", 1)
    assert (held.incarnation(one, M), held.stays()) == ("", [])
    held.bind(one, M, "a", 2)
    assert held.stays() == [(M, "a")]
    assert held.drop(one) == [Ended(M, "a", 2)]


def test_an_unknown_outcome_does_not_make_known_carriers_unknown() -> None:
    held, one, two = HeldConnections(), FakeConnection(), FakeConnection()
    held.bind(one, M, "a", 1)
    held.bind(two, M, "", 2)
    assert held.incarnation(one, M) == "a"
    assert held.drop(one) == []
    assert held.drop(two) == [Ended(M, "a", 2)]


def test_one_instance_can_leave_a_connection_that_stays() -> None:
    held, one = HeldConnections(), FakeConnection()
    held.bind(one, M, "a", 1)
    held.bind(one, N, "b", 2)
    assert held.unbind(one, M) == Ended(M, "a", 1)
    assert held.unbind(one, M) is None
    assert held.carriers() == [one]
