"""put_identity, delete_identity, restore_identities: identities in the store, one field of a hash each."""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from routebook.model.identity import MAX_IDENTITIES, Credentials, Identity, IdentityRecord, Role
from routebook.model.names import Caller
from routebook.store.namespace import (
    CountedOutcome,
    Namespace,
    Outcome,
    Status,
    compact_json,
    pack_caller,
    pairs,
    status_of,
)

Conflict = Literal["", "name", "access-key", "certificate", "number"]
"""Why an identity was refused: a name or credential that another identity has, or too many identities."""

_CONFLICTS: Final[tuple[Conflict, ...]] = ("", "name", "access-key", "certificate", "number")


async def put_identity(
    namespace: Namespace,
    identity: Identity,
    credentials: Credentials,
    *,
    caller: Caller,
    valid_for_ms: int = 0,
    replaces: bool = False,
) -> tuple[Outcome, Conflict]:
    """`valid_for_ms` 0: it does not expire. REFUSED with a conflict; an existing name needs `replaces`."""
    reply = await namespace.run(
        "put_identity",
        pack_caller(caller),
        identity.name,
        identity.role.label,
        _pack_members(identity, credentials),
        credentials.access_key,
        credentials.certificate,
        valid_for_ms,
        int(replaces),
        MAX_IDENTITIES,
    )
    return Outcome.of(reply), _CONFLICTS[int(reply[2])] if status_of(reply) is Status.REFUSED else ""


async def delete_identity(namespace: Namespace, name: str, *, caller: Caller, carried: bool = False) -> Outcome:
    """`carried`: workers still show the identity although the store has lost it."""
    return Outcome.of(await namespace.run("delete_identity", pack_caller(caller), name, int(carried)))


async def restore_identities(
    namespace: Namespace, values: Mapping[str, str], *, caller: Caller, position: str = ""
) -> CountedOutcome:
    """`values`: name → the text that the store had. `position`: see store/recovery.py."""
    entries = [part for name, value in values.items() for part in (name, value)]
    return CountedOutcome.of(await namespace.run("restore_identities", pack_caller(caller), position, *entries))


async def read_identities(namespace: Namespace) -> dict[str, str]:
    """Name → packed identity."""
    return dict(pairs(await namespace.client.call("HGETALL", namespace.keys.table("identities"))))


def _pack_members(identity: Identity, credentials: Credentials) -> str:
    """The script adds the times and the revision."""
    return compact_json(
        {
            "role": identity.role.label,
            "clusters": identity.clusters,
            "topics": identity.topics,
            "brokers": identity.brokers,
            "token_sha256": credentials.token_sha256,
            "access_key": credentials.access_key,
            "secret": credentials.secret,
            "certificate": credentials.certificate,
        }
    )[1:-1]


def parse_identity(name: str, packed: str) -> IdentityRecord | None:
    """None for what this release cannot read, such as a role of a later one: such an identity may do nothing."""
    try:
        return _parse(name, json.loads(packed))
    except (ValueError, KeyError, TypeError):
        return None


def _parse(name: str, fields: dict[str, Any]) -> IdentityRecord | None:
    role = next((role for role in Role if role.label == fields["role"]), None)
    if role is None:
        return None
    prefixes = [tuple(map(str, fields[what])) for what in ("clusters", "topics", "brokers")]
    return IdentityRecord(
        Identity(name, role, *prefixes),
        Credentials(
            token_sha256=str(fields["token_sha256"]),
            access_key=str(fields["access_key"]),
            secret=str(fields["secret"]),
            certificate=str(fields["certificate"]),
        ),
        created_ms=int(fields["created_ms"]),
        changed_ms=int(fields["changed_ms"]),
        expires_ms=int(fields["expires_ms"]),
    )
