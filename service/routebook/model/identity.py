"""Identities and their permissions. An identity is a name with a role and a policy, and the credentials that prove it.

Tokens are random and have 256 bits, so a plain SHA-256 is enough to store them: a slow hash such as bcrypt protects
secrets that can be guessed, and would let any peer spend a worker's CPU with wrong tokens. RocketMQ's signature is an
HMAC, for which both sides need the secret itself; it is therefore the only credential that is stored in clear.
"""

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from routebook.errors import InvalidInputError

MAX_IDENTITIES: Final = 1_000
"""The scripts read all of them, and every worker keeps all of them in memory."""
MAX_PREFIXES: Final = 100
MAX_PREFIX_CHARACTERS: Final = 300
MIN_SECRET_CHARACTERS: Final = 16
MAX_CREDENTIAL_CHARACTERS: Final = 256

RESERVED_NAMES: Final = frozenset({"admin-token", "operator", "anonymous"})
"""The history uses them for callers without an identity."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PRINTABLE = re.compile(r"[!-~]+")
_PREFIX = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{MAX_PREFIX_CHARACTERS}}}")
_SCANNER_PREFIX: Final = "rb_"
_TOKEN_BYTES: Final = 32


class Role(IntEnum):
    """Ordered: each role may do everything that the roles before it may do."""

    READ = 1
    """Reads routes, brokers, topics and the history."""
    BROKER = 2
    """Registers, unregisters and sends heartbeats."""
    OPERATOR = 3
    """Changes the fleet by hand: topics, permissions, key-values, a held expiry."""
    ADMIN = 4
    """Changes settings and identities, imports and exports snapshots."""

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> "Role":
        for role in cls:
            if role.label == text:
                return role
        raise InvalidInputError("role", text, ", ".join(role.label for role in cls))


@dataclass(frozen=True, slots=True)
class Identity:
    """A policy lists prefixes. An empty list allows every name."""

    name: str
    role: Role
    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether the policy excludes anything."""
        return bool(self.clusters or self.topics or self.brokers)

    def covers_cluster(self, cluster: str) -> bool:
        return not self.clusters or cluster.startswith(self.clusters)

    def covers_topic(self, topic: str) -> bool:
        return not self.topics or topic.startswith(self.topics)

    def covers_broker(self, broker: str) -> bool:
        return not self.brokers or broker.startswith(self.brokers)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What proves an identity. Each part is empty if the identity does not have it."""

    token_sha256: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)
    """The key of RocketMQ's HMAC."""
    certificate: str = ""
    """The name in a client's certificate: its common name, or one of its alternative names."""


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """An identity as the store has it. The times are those of the store's clock."""

    identity: Identity
    credentials: Credentials
    created_ms: int
    changed_ms: int
    expires_ms: int = 0
    """0: never."""

    def is_expired(self, now_ms: int) -> bool:
        return 0 < self.expires_ms <= now_ms


def make_token() -> str:
    """The prefix lets secret scanners recognize a token that was committed by mistake."""
    return _SCANNER_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def make_secret() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_identity_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInputError("name", name, "1 to 64 of A-Z a-z 0-9 . _ -")
    if name in RESERVED_NAMES:
        raise InvalidInputError("name", name, f"any name except {', '.join(sorted(RESERVED_NAMES))}")
    return name


def check_prefixes(what: str, prefixes: Collection[str]) -> tuple[str, ...]:
    if len(prefixes) > MAX_PREFIXES:
        raise InvalidInputError(what, f"{len(prefixes)} prefixes", f"at most {MAX_PREFIXES} prefixes")
    for prefix in prefixes:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidInputError(what, prefix, f"1 to {MAX_PREFIX_CHARACTERS} characters, no control characters")
    return tuple(sorted(set(prefixes)))


def check_credentials(credentials: Credentials) -> Credentials:
    """The error never repeats a secret."""
    for what, value in (("access key", credentials.access_key), ("certificate", credentials.certificate)):
        if value and (len(value) > MAX_CREDENTIAL_CHARACTERS or not _PRINTABLE.fullmatch(value)):
            raise InvalidInputError(what, value, _printable(1))
    secret = credentials.secret
    if bool(secret) != bool(credentials.access_key):
        raise InvalidInputError("access key", credentials.access_key, "an access key and a secret, or neither")
    is_long_enough = MIN_SECRET_CHARACTERS <= len(secret) <= MAX_CREDENTIAL_CHARACTERS
    if secret and not (is_long_enough and _PRINTABLE.fullmatch(secret)):
        raise InvalidInputError("secret", f"{len(secret)} characters", _printable(MIN_SECRET_CHARACTERS))
    return credentials


def _printable(least: int) -> str:
    return f"{least} to {MAX_CREDENTIAL_CHARACTERS} printable ASCII characters without spaces"


def policy_text(identity: Identity) -> str:
    """Readable text of the policy."""
    parts = (("clusters", identity.clusters), ("topics", identity.topics), ("brokers", identity.brokers))
    return "; ".join(f"{what} {_joined(prefixes)}" for what, prefixes in parts if prefixes) or "everything"


def _joined(prefixes: Iterable[str]) -> str:
    return ", ".join(f"{prefix}*" for prefix in prefixes)
