"""What an error reply of the store means to Routebook, and what a person should do about it.

Redis before 7 wraps an error met inside a script ("ERR Error running script …: -OOM …"); both shapes are
read here.
"""

import re
from collections.abc import Mapping

from redis.exceptions import RedisError

from routebook.errors import StoreError, StoreRefusalError

_IN_SCRIPT = re.compile(r"-(OOM|READONLY|MISCONF|NOPERM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b ?(.*)", re.DOTALL)

_ADVICE: Mapping[str, str] = {
    "LOADING": "It is reading its data after a start; wait.",
    "OOM": "Raise maxmemory of the store, or free memory there; Routebook needs maxmemory-policy noeviction.",
    "MISCONF": "The store cannot write to its disk: look at its log and at the free space there.",
    "READONLY": "That server is a replica; name the primary, or use a sentinel:// or cluster:// address.",
    "MASTERDOWN": "That server is a replica that has lost its primary; wait for the failover.",
    "NOREPLICAS": "Too few replicas are in touch with the primary (min-replicas-to-write): look at them.",
    "CLUSTERDOWN": "The cluster has slots that nobody serves: look at CLUSTER INFO.",
    "MOVED": "The slot has moved to another node; the next call looks for it.",
    "ASK": "The slot is being moved to another node; try again.",
    "TRYAGAIN": "The slot is being moved to another node; try again.",
    "BUSY": "A script has been running for long; SCRIPT KILL ends one that has not written.",
    "NOAUTH": "Give user and password in the store's address.",
    "WRONGPASS": "Check user and password in the store's address, and that the user is on.",
}
"""Errors under which nothing can be done with the store for the moment. The command was refused: nothing was
written.
"""

_CONNECT_ANEW = frozenset({"READONLY", "MOVED", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH"})
_REDIRECTED = frozenset({"READONLY", "MOVED"})


class NoScriptError(StoreError):
    """The store does not know a script by its hash: it was restarted, or its scripts were flushed."""


class StoreRefusedError(StoreRefusalError):
    """The store answers, but with an error that concerns the store, not the command: nothing was written."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"The store refuses: {code} {text}.".replace("..", "."), advice=_ADVICE[code])
        self.code = code
        self.text = text

    @property
    def wants_new_connection(self) -> bool:
        """The connection is to the wrong server now, or has lost its user."""
        return self.code in _CONNECT_ANEW

    @property
    def redirected(self) -> bool:
        """Somebody else takes this very command: it may be sent again."""
        return self.code in _REDIRECTED


class StoreReplyError(StoreError):
    """Any other error reply: the command or the script is wrong, or may not be run by this user."""

    def __init__(self, code: str, text: str) -> None:
        advice = "Grant the store's user this command on Routebook's keys." if code == "NOPERM" else ""
        super().__init__(f"The store answers {code} {text}".rstrip(), advice=advice)
        self.code = code
        self.text = text


def translate_reply(error: RedisError) -> StoreError:
    """From redis-py's exception for an error reply, which has cut off the code where it knows it."""
    status = getattr(error, "status_code", None)
    text = str(error.args[0]) if error.args else ""
    code, text = (status, text) if status else _split_code(text)
    if code == "ERR":
        if found := _IN_SCRIPT.search(text):
            code, text = found[1], found[2]
        elif "ACL failure in script" in text or "can't run this command or subcommand" in text:
            code = "NOPERM"
    if code == "NOSCRIPT":
        return NoScriptError(f"The store answers NOSCRIPT {text}")
    if code in _ADVICE:
        return StoreRefusedError(code, text)
    return StoreReplyError(code, text)


def _split_code(text: str) -> tuple[str, str]:
    first, _, rest = text.partition(" ")
    return (first, rest) if first.isupper() else ("ERR", text)
