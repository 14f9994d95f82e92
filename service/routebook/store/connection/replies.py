"""What an error reply of the store means for Routebook, and what an operator should do about it.

Redis before 7 wraps errors that occur inside a script ("ERR Error running script …: -OOM …"); both forms are read.
"""

import re
from collections.abc import Mapping

from redis.exceptions import RedisError

from routebook.errors import StoreError, StoreRefusalError, StoreUnsuitableError

_IN_SCRIPT = re.compile(r"-(OOM|READONLY|MISCONF|NOPERM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b ?(.*)", re.DOTALL)

_WRONG_TYPE = re.compile(r"WRONGTYPE (rb:\{.*?)(?:\.? script: .*)?$", re.DOTALL)
"""From `lua/include/types.lua`: the script wrote nothing."""
_WRONG_TYPE_ADVICE = (
    "Something other than Routebook made it. RENAME it to another name; what belongs there is written back by the "
    "workers and brokers."
)

_ADVICE: Mapping[str, str] = {
    "LOADING": "It is loading its data after a start; wait.",
    "OOM": "Raise maxmemory of the store, or free memory there; Routebook needs maxmemory-policy noeviction.",
    "MISCONF": "The store cannot write to its disk: check its log and its free disk space.",
    "READONLY": "That server is a replica; name the primary, or use a sentinel:// or cluster:// address.",
    "MASTERDOWN": "That server is a replica that has lost its primary; wait for the failover.",
    "NOREPLICAS": "Too few replicas are connected to the primary (min-replicas-to-write): check them.",
    "CLUSTERDOWN": "The cluster has slots that no node serves: check CLUSTER INFO.",
    "MOVED": "The slot has moved to another node; the next call finds it.",
    "ASK": "The slot is being moved to another node; try again.",
    "TRYAGAIN": "The slot is being moved to another node; try again.",
    "BUSY": "A script has been running for long; SCRIPT KILL ends one that has not written.",
    "NOAUTH": "Give user and password in the store's address.",
    "WRONGPASS": "Check user and password in the store's address, and that the user is on.",
}
"""Errors that concern the store as a whole and pass. The command was refused: nothing was written."""

_NEEDS_NEW_CONNECTION = frozenset({"READONLY", "MOVED", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH"})
_REDIRECTED = frozenset({"READONLY", "MOVED"})


class NoScriptError(StoreError):
    """The store does not have a script: it was restarted, or its scripts were flushed."""


class StoreRefusedError(StoreRefusalError):
    """The store answers, but with an error that concerns the store, not the command: nothing was written."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"The store refuses: {code} {text}.".replace("..", "."), advice=_ADVICE[code])
        self.code = code
        self.text = text

    @property
    def wants_new_connection(self) -> bool:
        """The connection leads to the wrong server now, or its user is no longer valid."""
        return self.code in _NEEDS_NEW_CONNECTION

    @property
    def is_cut_off(self) -> bool:
        """The primary has lost its replicas. It may be on the wrong side of a partition."""
        return self.code == "NOREPLICAS"

    @property
    def redirected(self) -> bool:
        """Another server accepts this command: it may be sent again."""
        return self.code in _REDIRECTED


class StoreReplyError(StoreError):
    """Any other error reply: the command or the script is wrong, or this user lacks the permission."""

    def __init__(self, code: str, text: str) -> None:
        advice = "Grant the store's user this command on Routebook's keys." if code == "NOPERM" else ""
        super().__init__(f"The store answers {code} {text}".rstrip(), advice=advice)
        self.code = code
        self.text = text


def translate_reply(error: RedisError) -> StoreError:
    """From redis-py's exception for an error reply, whose text lacks the code if redis-py recognized it."""
    status = getattr(error, "status_code", None)
    text = str(error.args[0]) if error.args else ""
    code, text = (status, text) if status else _split_code(text)
    if code == "ERR":
        if found := _IN_SCRIPT.search(text):
            code, text = found[1], found[2]
        elif "ACL failure in script" in text or "can't run this command or subcommand" in text:
            code = "NOPERM"
    if found := _WRONG_TYPE.search(text):
        return StoreUnsuitableError(f"The store's key {found[1]}.", advice=_WRONG_TYPE_ADVICE)
    if code == "NOSCRIPT":
        return NoScriptError(f"The store answers NOSCRIPT {text}")
    if code in _ADVICE:
        return StoreRefusedError(code, text)
    return StoreReplyError(code, text)


def _split_code(text: str) -> tuple[str, str]:
    first, _, rest = text.partition(" ")
    return (first, rest) if first.isupper() else ("ERR", text)
