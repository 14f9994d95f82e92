"""Which connections of a worker are bound to which instances, without a store."""

from routebook.registry.sessions import Bindings, EndedBinding
from tests.support.fake_connection import FakeConnection

M, N = "east/127.0.0.1:10911", "east/127.0.0.2:10911"


def test_closing_the_only_connection_ends_all_its_bindings() -> None:
    bindings, connection = Bindings(), FakeConnection()
    bindings.bind(connection, M, "a", 1)
    bindings.bind(connection, N, "b", 2)
    assert bindings.remove(connection) == [EndedBinding(M, "a", 1), EndedBinding(N, "b", 2)]
    assert (len(bindings), bindings.connections(), bindings.remove(connection)) == (0, [], [])


def test_a_binding_ends_with_its_last_connection_and_the_highest_stamp() -> None:
    bindings, first, second = Bindings(), FakeConnection(), FakeConnection()
    bindings.bind(first, M, "a", 1)
    bindings.bind(second, M, "a", 2)
    assert bindings.remove(second) == []
    assert bindings.remove(first) == [EndedBinding(M, "a", 2)]


def test_a_new_incarnation_is_bound_only_to_the_connection_that_registered_it() -> None:
    bindings, first, second = Bindings(), FakeConnection(), FakeConnection()
    bindings.bind(first, M, "a", 1)
    bindings.bind(first, N, "n", 2)
    bindings.bind(second, M, "b", 3)
    assert (bindings.incarnation(first, M), bindings.incarnation(second, M)) == ("", "b")
    assert bindings.connections_of(M, "a") == []
    assert bindings.remove(first) == [EndedBinding(N, "n", 2)]
    assert bindings.remove(second) == [EndedBinding(M, "b", 3)]


def test_a_session_that_may_have_been_opened_is_bound_without_an_incarnation() -> None:
    bindings, connection = Bindings(), FakeConnection()
    bindings.bind(connection, M, "", 1)
    assert (bindings.incarnation(connection, M), bindings.incarnations()) == ("", [])
    bindings.bind(connection, M, "a", 2)
    assert bindings.incarnations() == [(M, "a")]
    assert bindings.remove(connection) == [EndedBinding(M, "a", 2)]


def test_an_unknown_result_does_not_hide_a_known_incarnation() -> None:
    bindings, first, second = Bindings(), FakeConnection(), FakeConnection()
    bindings.bind(first, M, "a", 1)
    bindings.bind(second, M, "", 2)
    assert bindings.incarnation(first, M) == "a"
    assert bindings.remove(first) == []
    assert bindings.remove(second) == [EndedBinding(M, "a", 2)]


def test_an_instance_can_be_released_from_a_connection_that_stays_open() -> None:
    bindings, connection = Bindings(), FakeConnection()
    bindings.bind(connection, M, "a", 1)
    bindings.bind(connection, N, "b", 2)
    assert bindings.unbind(connection, M) == EndedBinding(M, "a", 1)
    assert bindings.unbind(connection, M) is None
    assert bindings.connections() == [connection]
