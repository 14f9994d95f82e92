"""Which names are legal, for everything that comes from outside; and the caller of a change."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from routebook.errors import InvalidInputError
from routebook.model.identity import Identity, Role

MAX_NAME_CHARACTERS = 300
"""RocketMQ allows a consumer group 255, and its retry topic's name has a prefix. Other names get the same limit."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(field: str, name: str) -> str:
    """A topic, broker, cluster or key name. Peers send names such as `%RETRY%group`, so nearly all are legal."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or _FORBIDDEN.search(name):
        raise InvalidInputError(field, name, f"1 to {MAX_NAME_CHARACTERS} characters, none of them a control character")
    return name


def check_encodable(field: str, text: str) -> str:
    """JSON can contain half of a surrogate pair (`"\\ud800"`), which is no character and has no form in UTF-8."""
    if _SURROGATE.search(text):
        raise InvalidInputError(field, "a text with a lone surrogate", "texts in UTF-8")
    return text


def check_text(field: str, text: str) -> str:
    """A text that is stored and returned as it is, possibly empty. It has to be valid in UTF-8."""
    if len(text) > MAX_NAME_CHARACTERS or _FORBIDDEN.search(text):
        raise InvalidInputError(
            field, text, f"at most {MAX_NAME_CHARACTERS} characters, none of them a control character"
        )
    return text


def check_names(field: str, names: Collection[str]) -> None:
    """As `check_name` for each, in a third of the time."""
    together = "".join(names)
    if not names or (
        "" not in names and max(map(len, names)) <= MAX_NAME_CHARACTERS and not _FORBIDDEN.search(together)
    ):
        return
    for name in names:
        check_name(field, name)


def check_address(field: str, address: str) -> str:
    """`host:port` of a broker's own listener; IPv6 in brackets."""
    found = _ADDRESS.fullmatch(address)
    is_text = len(address) <= MAX_NAME_CHARACTERS and not _FORBIDDEN.search(address)
    if not found or not is_text or not 1 <= int(found["port"]) <= 65535:
        raise InvalidInputError(field, address, "host:port with a port from 1 to 65535, IPv6 in brackets")
    return address


def check_namespace(namespace: str) -> str:
    """Part of the slot tag of every key, so it contains no braces or colons."""
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidInputError("namespace", namespace, "1 to 64 of A-Z a-z 0-9 . _ -")
    return namespace


def check_broker_id(broker_id: int) -> int:
    """0 is the master. The protocol has a signed number of 64 bits."""
    if not 0 <= broker_id < 2**63:
        raise InvalidInputError("broker id", broker_id, "0 (master) to 9223372036854775807")
    return broker_id


def join_instance_name(cluster: str, address: str) -> str:
    """The name of an instance in the store. An address contains no slash, so the last slash separates the two."""
    return f"{cluster}/{address}"


def split_instance_name(instance_name: str) -> tuple[str, str]:
    cluster, _, address = instance_name.rpartition("/")
    return cluster, address


@dataclass(frozen=True, slots=True)
class Caller:
    """Recorded with every change in the history, and with every refusal."""

    actor: str
    """Name of the peer's identity, `admin-token`, `operator` (loopback), `anonymous`, or the id of a worker that acts
    by itself.
    """
    source: str = ""
    """The peer's address, after PROXY; empty when the worker itself made the change."""
    identity: Identity | None = None
    """Proven by a token, a signature or a certificate."""
    worker: str = ""
    """The worker that received the request; empty when the worker is the actor."""
    port: str = ""
    """`http` or `remoting`; empty when no peer sent a request."""
    verb: str = ""
    """Name of the request: RocketMQ's, or that of the operation in the HTTP API."""

    @property
    def is_operator(self) -> bool:
        """Whether the caller has proven to be an operator, or counts as one on loopback."""
        if self.identity is not None:
            return self.identity.role >= Role.OPERATOR
        return self.actor in ("admin-token", "operator")

    @property
    def cause(self) -> str:
        """Cause of a change that is usually made by hand: `request` if the caller has not proven to be an operator."""
        return "operator" if self.is_operator else "request"


ANONYMOUS = "anonymous"
"""The actor of a peer that has no identity."""
