"""RocketMQ's signatures. The vectors were printed by `AclClientRPCHook` of 5.5.0; that of 4.9.7 makes the same."""

from collections.abc import Generator

import pytest

from routebook.remoting.permissions import STEP_BYTES, check_signature_in_steps, sign, signed_text

SECRET = "0123456789abcdef"

LOOKUP = {"AccessKey": "broker-key", "topic": "TopicA", "Signature": "v2pUIHQE/kvOq/Ac2uXPsmfudO0="}
WITH_TOKEN = {
    "AccessKey": "broker-key",
    "SecurityToken": "security-token",
    "topic": "%RETRY%grüße",
    "Signature": "t+Mb/16W1v0C5O3ARSXn2jbafLI=",
}
ZONE_ADDED_AFTERWARDS = LOOKUP | {"__ZONE_NAME": "az-1", "__ZONE_MODE": "true"}
REGISTRATION = {
    "AccessKey": "broker-key",
    "bodyCrc32": "1",
    "brokerAddr": "127.0.0.11:10911",
    "brokerId": "0",
    "brokerName": "broker-a",
    "clusterName": "DefaultCluster",
    "compressed": "false",
    "haServerAddr": "127.0.0.11:10912",
    "Signature": "CUVIlTKU84jMG0QsxqXTxJGRu6I=",
}
NO_FIELDS = {"AccessKey": "broker-key", "Signature": "HU9UG6G0wjBxWvGqFi6XM1YrVM4="}
VECTORS = {
    "a lookup": (LOOKUP, b""),
    "a security token and letters beyond ASCII": (WITH_TOKEN, b""),
    "a zone that the client adds after signing": (ZONE_ADDED_AFTERWARDS, b""),
    "a registration with a body": (REGISTRATION, b'{"filterServerList":[]}'),
    "a request without fields of its own": (NO_FIELDS, b""),
}


def result(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


@pytest.mark.parametrize("name", VECTORS)
def test_a_signature_of_the_java_hook_is_accepted(name: str) -> None:
    ext, body = VECTORS[name]
    assert result(check_signature_in_steps(SECRET, ext, body))
    assert not result(check_signature_in_steps(SECRET + "x", ext, body))
    assert not result(check_signature_in_steps(SECRET, ext, body + b" "))


@pytest.mark.parametrize("name", sorted(set(REGISTRATION) - {"Signature"}))
def test_every_field_is_signed(name: str) -> None:
    body = VECTORS["a registration with a body"][1]
    assert not result(check_signature_in_steps(SECRET, REGISTRATION | {name: "9"}, body))


def test_an_added_field_is_refused() -> None:
    assert not result(check_signature_in_steps(SECRET, LOOKUP | {"acceptStandardJsonOnly": "true"}, b""))


def test_a_zone_that_was_signed_is_accepted() -> None:
    """Brokers add their zone before they sign."""
    ext = {"AccessKey": "broker-key", "__ZONE_NAME": "az-1"}
    signed = ext | {"Signature": sign(SECRET, signed_text(ext).encode())}
    assert result(check_signature_in_steps(SECRET, signed, b""))


def test_a_zone_that_is_added_to_a_registration_is_refused() -> None:
    ext, body = VECTORS["a registration with a body"]
    assert result(check_signature_in_steps(SECRET, ext, body, allows_added_zone=False))
    assert not result(check_signature_in_steps(SECRET, ext | {"__ZONE_NAME": "x"}, body, allows_added_zone=False))


@pytest.mark.parametrize("signature", ["", "x", "\ud800", "v2pUIHQE/kvOq/Ac2uXPsmfudO0", "ü" * 100])
def test_a_malformed_signature_is_refused(signature: str) -> None:
    assert not result(check_signature_in_steps(SECRET, LOOKUP | {"Signature": signature}, b""))


def test_a_large_body_is_checked_in_steps() -> None:
    body = b"x" * (3 * STEP_BYTES + 1)
    ext = {"AccessKey": "broker-key"}
    signed = ext | {"Signature": sign(SECRET, signed_text(ext).encode() + body)}
    steps = check_signature_in_steps(SECRET, signed, body)
    for _ in range(3):
        next(steps)
    assert result(steps)
