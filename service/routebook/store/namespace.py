"""What a script says of what it did: the same list as `lua/include/statuses.lua`.

The route table as one worker holds it: a connection, the keys of one namespace, the scripts.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from routebook.errors import StoreUnsuitableError
from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.scripts import ScriptSet


class Status(IntEnum):
    DONE = 0
    UNCHANGED = 1
    UNKNOWN = 2
    STALE = 3
    REFUSED = 4
    TURNED_DOWN = 5
    FENCED = 6


def text(value: Any) -> str:
    """A bulk reply as text; absent is empty."""
    return "" if value is None else bytes(value).decode()


def status_of(reply: list[Any]) -> Status:
    return Status(reply[0])


SCHEMA = 1
"""Layout of the tables. A store with a newer one refuses our start."""


@dataclass(frozen=True, slots=True)
class Namespace:
    client: StoreClient
    keys: Keys
    scripts: ScriptSet

    async def run(self, script: str, *args: str | int) -> list[Any]:
        """One script. Every key it touches is built from `meta`; the reply begins with a status and the version."""
        reply = await self.scripts.run(self.client, script, self.keys.meta, *args)
        if not isinstance(reply, list):
            raise StoreUnsuitableError(
                f"{script} answered {reply!r}.", advice="Another program may be using this namespace."
            )
        return reply


@dataclass(frozen=True, slots=True)
class Outcome:
    """What most scripts say: how it went, and the version of the route table afterwards."""

    status: Status
    version: int

    @classmethod
    def of(cls, reply: list[Any]) -> "Outcome":
        return cls(status_of(reply), int(reply[1]))


@dataclass(frozen=True, slots=True)
class CountedOutcome:
    status: Status
    version: int
    count: int

    @classmethod
    def of(cls, reply: list[Any]) -> "CountedOutcome":
        return cls(status_of(reply), int(reply[1]), int(reply[2]))
