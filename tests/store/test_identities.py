"""Identities in the store: unique names and credentials, no secret in the history, restored after a loss."""

import json

from routebook.model.identity import MAX_IDENTITIES, Credentials, Identity, Role, hash_token
from routebook.store.history import read_changes
from routebook.store.identities import (
    delete_identity,
    parse_identity,
    put_identity,
    read_identities,
    restore_identities,
)
from routebook.store.namespace import Namespace, Status
from routebook.store.recovery import mark_restored
from tests.support.scripts import CALLER

OPERATOR = Identity("ops", Role.OPERATOR, clusters=("east",), topics=("pay",), brokers=("broker-a",))
CREDENTIALS = Credentials(hash_token("t"), "key-1", "a-very-secret-secret", "ops.example")


async def test_what_is_written_is_read_back(namespace: Namespace) -> None:
    outcome, conflict = await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER, valid_for_ms=60_000)
    assert (outcome.status, conflict) == (Status.DONE, "")
    record = parse_identity("ops", (await read_identities(namespace))["ops"])
    assert record is not None
    assert (record.identity, record.credentials) == (OPERATOR, CREDENTIALS)
    assert record.expires_ms == record.created_ms + 60_000
    assert record.is_expired(record.expires_ms)
    assert not record.is_expired(record.expires_ms - 1)


async def test_an_identity_without_end_never_expires(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    record = parse_identity("ops", (await read_identities(namespace))["ops"])
    assert record is not None
    assert not record.is_expired(2**62)


async def test_the_history_has_no_credentials(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    await delete_identity(namespace, "ops", caller=CALLER)
    changes = await read_changes(namespace, (0, 0), count=10)
    assert [(change.kind, change.fields["cause"]) for change in changes] == [
        ("identity-changed", "created"),
        ("identity-changed", "revoked"),
    ]
    text = json.dumps([dict(change.fields) for change in changes])
    for secret in (CREDENTIALS.token_sha256, CREDENTIALS.access_key, CREDENTIALS.secret, CREDENTIALS.certificate):
        assert secret not in text


async def test_an_existing_name_is_replaced_only_on_purpose(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    before = parse_identity("ops", (await read_identities(namespace))["ops"])
    other = Credentials(hash_token("other"))
    refused, conflict = await put_identity(namespace, OPERATOR, other, caller=CALLER)
    assert (refused.status, refused.version, conflict) == (Status.REFUSED, 1, "name")
    replaced, _ = await put_identity(namespace, OPERATOR, other, caller=CALLER, replaces=True)
    assert replaced.status is Status.DONE
    now = parse_identity("ops", (await read_identities(namespace))["ops"])
    assert before is not None
    assert now is not None
    assert (now.created_ms, now.credentials) == (before.created_ms, other)


async def test_two_identities_do_not_share_an_access_key_or_a_certificate(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    other = Identity("other", Role.READ)
    for credentials, expected in (
        (Credentials("x", "key-1", "another-secret-text"), "access-key"),
        (Credentials("x", certificate="ops.example"), "certificate"),
    ):
        outcome, conflict = await put_identity(namespace, other, credentials, caller=CALLER)
        assert (outcome.status, outcome.version, conflict) == (Status.REFUSED, 1, expected)
    assert list(await read_identities(namespace)) == ["ops"]


async def test_the_number_of_identities_is_limited(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    packed = (await read_identities(namespace))["ops"].replace("key-1", "").replace("ops.example", "")
    filling = [word for n in range(MAX_IDENTITIES - 1) for word in (f"name-{n}", packed)]
    await namespace.client.call("HSET", namespace.keys.table("identities"), *filling)
    _, conflict = await put_identity(namespace, Identity("one-more", Role.READ), Credentials("y"), caller=CALLER)
    assert conflict == "number"
    outcome, _ = await put_identity(namespace, OPERATOR, Credentials("y"), caller=CALLER, replaces=True)
    assert outcome.status is Status.DONE


async def test_an_unknown_identity_cannot_be_deleted(namespace: Namespace) -> None:
    assert (await delete_identity(namespace, "ops", caller=CALLER)).status is Status.UNKNOWN
    assert await read_changes(namespace, (0, 0), count=10) == []
    assert (await delete_identity(namespace, "ops", caller=CALLER, carried=True)).status is Status.DONE


async def test_lost_identities_are_restored_once_and_never_overwritten(namespace: Namespace) -> None:
    await put_identity(namespace, OPERATOR, CREDENTIALS, caller=CALLER)
    lost = await read_identities(namespace)
    await namespace.client.call("DEL", namespace.keys.table("identities"))
    await put_identity(namespace, Identity("new", Role.READ), Credentials("z"), caller=CALLER)
    new = (await read_identities(namespace))["new"]
    written = await restore_identities(namespace, {**lost, "new": lost["ops"]}, caller=CALLER)
    assert written.count == 1
    assert await read_identities(namespace) == {**lost, "new": new}
    await mark_restored(namespace)
    await namespace.client.call("DEL", namespace.keys.table("identities"))
    assert (await restore_identities(namespace, lost, caller=CALLER)).count == 0


def test_an_identity_of_a_later_release_may_do_nothing() -> None:
    assert parse_identity("x", '{"role":"emperor"}') is None
    assert parse_identity("x", "no json") is None
    assert parse_identity("x", "[]") is None
