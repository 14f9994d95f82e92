"""Finds identities by their credentials, and creates and revokes them.

Every worker has all identities in its table, so a request is checked without the store, and a revoked identity is
refused as soon as the history's entry has arrived.
"""

import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, get_args

from routebook.errors import ConflictError, InvalidInputError, NotFoundError
from routebook.model.identity import (
    MAX_IDENTITIES,
    Credentials,
    Identity,
    IdentityRecord,
    Role,
    check_credentials,
    check_identity_name,
    check_prefixes,
    hash_token,
    make_secret,
    make_token,
)
from routebook.model.names import Caller
from routebook.replica.replica import ReadYourWrites, Replica
from routebook.settings import Settings
from routebook.store.identities import Conflict, delete_identity, parse_identity, put_identity
from routebook.store.namespace import Namespace, Status

MAX_VALID_MS: Final = 10 * 365 * 86_400_000
"""Ten years."""

_CONFLICTS: Final[Mapping[Conflict, str]] = MappingProxyType(
    {
        "name": "exists already; revoke it first, or replace it on purpose",
        "access-key": "has an access key that another identity has",
        "certificate": "has a certificate name that another identity has",
        "number": f"would be one more than the limit of {MAX_IDENTITIES} identities; revoke one first",
    }
)


@dataclass(frozen=True, slots=True)
class NewCredentials:
    """What only the answer to the creation contains."""

    token: str
    access_key: str = ""
    secret: str = ""
    version: int = 0

    def __repr__(self) -> str:
        return "NewCredentials(…)"


@dataclass(frozen=True, slots=True)
class _Index:
    records: tuple[IdentityRecord, ...]
    by_token_sha256: Mapping[str, IdentityRecord]
    by_access_key: Mapping[str, IdentityRecord]
    by_certificate: Mapping[str, IdentityRecord]
    has_brokers: bool

    @classmethod
    def of(cls, packed: Mapping[str, str]) -> "_Index":
        found = (parse_identity(name, text) for name, text in sorted(packed.items()))
        records = tuple(record for record in found if record)
        return cls(
            records,
            {one.credentials.token_sha256: one for one in records if one.credentials.token_sha256},
            {one.credentials.access_key: one for one in records if one.credentials.access_key},
            {one.credentials.certificate: one for one in records if one.credentials.certificate},
            any(one.identity.role is Role.BROKER for one in records),
        )


Openness = Literal["registration", "remoting-administration"]
"""Requests that every peer may send: registrations, or administrative requests on the remoting port."""
OPENNESSES: Final[tuple[Openness, ...]] = get_args(Openness)


OPEN_ACCESS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "registration": "Everyone who can connect may register and remove brokers: no identity with the role broker "
        "exists (`routebook token create NAME --role broker`).",
        "remoting-administration": "Everyone who can connect may change the fleet over the remoting port: "
        "remoting_admin is open.",
    }
)


def open_to_all(settings: Settings, identities: "Identities") -> tuple[Openness, ...]:
    """Nothing when only programs on this machine can connect."""
    if settings.listens_on_loopback_only:
        return ()
    found: list[Openness] = [] if identities.has_brokers else ["registration"]
    return (*found, "remoting-administration") if settings.remoting_admin == "open" else tuple(found)


class Identities:
    def __init__(self, namespace: Namespace, replica: Replica) -> None:
        self._namespace = namespace
        self._replica = replica
        self._packed: Mapping[str, str] = {}
        self._current = _Index.of({})

    @property
    def any(self) -> bool:
        """Identities are on while the store has one, expired ones included: an expiry date must open nothing."""
        return bool(self._replica.view.identities)

    @property
    def has_brokers(self) -> bool:
        """Whether brokers have to prove who they are: from the first identity with the role `broker` on. So an
        operator's token alone changes nothing for brokers, and brokers can be given their keys before they are needed.
        """
        return self._index.has_brokers

    @property
    def are_loaded(self) -> bool:
        """False before the first load of the table. Until then, an identity that is not found may exist."""
        return self._replica.complete

    def all(self) -> tuple[IdentityRecord, ...]:
        """Sorted by name."""
        return self._index.records

    def by_token(self, token: str) -> Identity | None:
        """The dictionary is searched by the hash, which reveals nothing about a token by the time it takes."""
        wanted = hash_token(token)
        record = self._valid(self._index.by_token_sha256.get(wanted))
        if record is None or not hmac.compare_digest(record.credentials.token_sha256, wanted):
            return None
        return record.identity

    def by_access_key(self, access_key: str) -> tuple[Identity, str] | None:
        """The identity, and the secret of its signatures."""
        record = self._valid(self._index.by_access_key.get(access_key))
        return (record.identity, record.credentials.secret) if record else None

    def by_certificate(self, name: str) -> Identity | None:
        """`name` of a certificate that was verified: its common name, or one of its alternative names."""
        record = self._valid(self._index.by_certificate.get(name))
        return record.identity if record else None

    def by_certificates(self, names: Iterable[str]) -> Identity | None:
        """The first identity among the names of one certificate."""
        return next(filter(None, map(self.by_certificate, names)), None)

    async def create(
        self,
        identity: Identity,
        caller: Caller,
        *,
        credentials: Credentials | None = None,
        valid_for_ms: int = 0,
        replaces: bool = False,
    ) -> NewCredentials:
        """Makes a token, and a secret if there is an access key without one."""
        if not 0 <= valid_for_ms <= MAX_VALID_MS:
            raise InvalidInputError("valid_for_ms", valid_for_ms, f"0 (without end) to {MAX_VALID_MS}")
        checked = Identity(
            check_identity_name(identity.name),
            identity.role,
            check_prefixes("clusters", identity.clusters),
            check_prefixes("topics", identity.topics),
            check_prefixes("brokers", identity.brokers),
        )
        credentials = credentials or Credentials()
        token, secret = make_token(), credentials.secret
        if credentials.access_key and not secret:
            secret = make_secret()
        stored = check_credentials(replace(credentials, token_sha256=hash_token(token), secret=secret))
        write = ReadYourWrites(self._replica)
        outcome, conflict = await put_identity(
            self._namespace, checked, stored, caller=caller, valid_for_ms=valid_for_ms, replaces=replaces
        )
        if conflict:
            raise ConflictError(f"Identity {checked.name!r} {_CONFLICTS[conflict]}.")
        return NewCredentials(token, stored.access_key, secret, await write.wait(outcome.version))

    async def revoke(self, name: str, caller: Caller) -> int:
        """Returns the version of the route table afterwards."""
        carried = name in self._replica.view.identities and name not in self._replica.table.identities
        write = ReadYourWrites(self._replica)
        outcome = await delete_identity(self._namespace, name, caller=caller, carried=carried)
        if outcome.status is Status.UNKNOWN:
            raise NotFoundError("identity", name, advice="`routebook token list` shows all of them.")
        return await write.wait(outcome.version)

    @property
    def _index(self) -> _Index:
        packed = self._replica.view.identities
        if packed is not self._packed:
            self._packed, self._current = packed, _Index.of(packed)
        return self._current

    @staticmethod
    def _valid(record: IdentityRecord | None) -> IdentityRecord | None:
        """Expiry is compared with this worker's clock: a request does not wait for the store."""
        return None if record is None or record.is_expired(int(time.time() * 1000)) else record
