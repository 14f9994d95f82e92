"""What may be a name: nearly everything that real peers send, and nothing that would break a key or a log line."""

import pytest

from routebook.errors import InvalidInputError
from routebook.model.names import (
    check_address,
    check_broker_id,
    check_name,
    check_namespace,
    join_instance_name,
    split_instance_name,
)


@pytest.mark.parametrize("name", ["orders", "%RETRY%group", "a b", "日本", "x" * 300, "broker/a", "{}"])
def test_names_that_peers_use_are_legal(name: str) -> None:
    assert check_name("topic", name) == name


@pytest.mark.parametrize("name", ["", "x" * 301, "a\nb", "a\x00", "\x7f", "\ud800"])
def test_names_that_nobody_could_handle_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        check_name("topic", name)
    assert refusal.value.field == "topic"
    assert "300" in refusal.value.allowed


@pytest.mark.parametrize("address", ["127.0.0.1:10911", "broker.example:1", "[::1]:65535", "[fe80::1%eth0]:10911"])
def test_addresses(address: str) -> None:
    assert check_address("address", address) == address


@pytest.mark.parametrize("address", ["", "127.0.0.1", ":1", "a:0", "a:65536", "a b:1", "a/b:1", "::1:10911", "a:1:2"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InvalidInputError):
        check_address("address", address)


@pytest.mark.parametrize("namespace", ["", "a:b", "a}b", "a{b", "x" * 65, "a b"])
def test_a_namespace_must_not_break_the_slot_tag(namespace: str) -> None:
    with pytest.raises(InvalidInputError):
        check_namespace(namespace)


@pytest.mark.parametrize("broker_id", [-1, 2**63])
def test_broker_ids_are_positive_and_of_63_bits(broker_id: int) -> None:
    with pytest.raises(InvalidInputError):
        check_broker_id(broker_id)


def test_a_cluster_with_a_slash_can_still_be_told_from_the_address() -> None:
    assert split_instance_name(join_instance_name("eu/west", "127.0.0.1:1")) == ("eu/west", "127.0.0.1:1")


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(InvalidInputError) as refusal:
        check_name("topic", "x" * 5000)
    assert len(str(refusal.value)) < 300
