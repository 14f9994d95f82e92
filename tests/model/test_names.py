"""Nearly every name that peers send is legal, except one that would break a key or a log line."""

import pytest

from routebook.errors import InvalidInputError
from routebook.model.names import (
    check_address,
    check_broker_id,
    check_name,
    check_names,
    check_namespace,
    join_instance_name,
    split_instance_name,
)


@pytest.mark.parametrize("name", ["orders", "%RETRY%group", "a b", "日本", "x" * 300, "broker/a", "{}"])
def test_names_that_peers_use_are_legal(name: str) -> None:
    assert check_name("topic", name) == name


@pytest.mark.parametrize("name", ["", "x" * 301, "a\nb", "a\x00", "\x7f", "\ud800"])
def test_names_that_are_empty_too_long_or_unprintable_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        check_name("topic", name)
    assert refusal.value.field == "topic"
    assert "300" in refusal.value.allowed


@pytest.mark.parametrize("address", ["127.0.0.1:10911", "broker.example:1", "[::1]:65535", "[fe80::1%eth0]:10911"])
def test_addresses_with_host_and_port_are_legal(address: str) -> None:
    assert check_address("address", address) == address


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":1", "a:0", "a:65536", "a b:1", "a/b:1", "::1:10911", "a:1:2"])
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(InvalidInputError):
        check_address("address", address)


@pytest.mark.parametrize("namespace", ["", "a:b", "a}b", "a{b", "x" * 65, "a b"])
def test_namespaces_that_would_break_the_slot_tag_are_refused(namespace: str) -> None:
    with pytest.raises(InvalidInputError):
        check_namespace(namespace)


@pytest.mark.parametrize("broker_id", [-1, 2**63])
def test_broker_ids_outside_63_bits_are_refused(broker_id: int) -> None:
    with pytest.raises(InvalidInputError):
        check_broker_id(broker_id)


def test_an_instance_name_is_split_at_its_last_slash() -> None:
    assert split_instance_name(join_instance_name("eu/west", "127.0.0.1:1")) == ("eu/west", "127.0.0.1:1")


def test_a_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidInputError) as refusal:
        check_name("topic", "x" * 5000)
    assert len(str(refusal.value)) < 300


def test_many_names_are_checked_like_each_of_them() -> None:
    check_names("topic", [])
    check_names("topic", ["%RETRY%group", "ä", "x" * 300])
    for wrong in ("", "x" * 301, "a\nb", "\ud800"):
        with pytest.raises(InvalidInputError):
            check_names("topic", ["good", wrong, "also good"])
