"""Names, policies and credentials of identities."""

import pytest

from routebook.errors import InvalidInputError
from routebook.model.identity import (
    MAX_PREFIXES,
    Credentials,
    Identity,
    Role,
    check_credentials,
    check_identity_name,
    check_prefixes,
    hash_token,
    make_token,
)


def test_roles_are_ordered() -> None:
    assert Role.READ < Role.BROKER < Role.OPERATOR < Role.ADMIN
    assert [Role.parse(role.label) for role in Role] == list(Role)
    with pytest.raises(InvalidInputError, match="read, broker, operator, admin"):
        Role.parse("root")


def test_an_empty_policy_allows_every_name() -> None:
    identity = Identity("x", Role.READ)
    assert identity.covers_cluster("c")
    assert identity.covers_topic("t")
    assert identity.covers_broker("b")
    assert not identity.is_limited


def test_a_policy_allows_names_with_one_of_its_prefixes() -> None:
    identity = Identity("x", Role.READ, clusters=("east", "west"), topics=("pay-",), brokers=("broker-a",))
    assert identity.covers_cluster("west-2")
    assert not identity.covers_cluster("north")
    assert identity.covers_topic("pay-orders")
    assert not identity.covers_topic("pay")
    assert identity.covers_broker("broker-a")
    assert not identity.covers_broker("broker-b")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "admin-token", "operator", "anonymous", "ä", "a\n"])
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        check_identity_name(name)


def test_prefixes_are_checked_and_sorted() -> None:
    assert check_prefixes("topics", ["b", "a", "b"]) == ("a", "b")
    for prefixes in ([""], ["a\nb"], ["x" * 301], [str(n) for n in range(MAX_PREFIXES + 1)]):
        with pytest.raises(InvalidInputError):
            check_prefixes("topics", prefixes)


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(access_key="key"),
        Credentials(secret="a-secret-without-a-key"),
        Credentials(access_key="key", secret="short"),
        Credentials(access_key="key", secret="with spaces in the text"),
        Credentials(access_key="k y", secret="a-long-enough-secret"),
        Credentials(certificate="x" * 257),
    ],
)
def test_bad_credentials_are_refused_without_showing_the_secret(credentials: Credentials) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_credentials(credentials)
    assert not credentials.secret or credentials.secret not in str(caught.value)


def test_a_secret_does_not_appear_in_its_repr() -> None:
    assert "hidden-secret" not in repr(Credentials(access_key="key", secret="hidden-secret"))


def test_tokens_are_random_and_any_text_can_be_hashed() -> None:
    assert make_token() != make_token()
    assert len(make_token()) >= 43
    assert len(hash_token("\ud800")) == 64
