"""One namespace in the store: the connection, the names of its keys, and the scripts that read and write it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import Any

from routebook.errors import StoreError, StoreUnsuitableError
from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.scripts import ScriptSet


class Status(IntEnum):
    """How a script ended. `lua/include/statuses.lua` has the same list."""

    DONE = 0
    UNCHANGED = 1
    UNKNOWN = 2
    STALE = 3
    REFUSED = 4
    TURNED_DOWN = 5
    FENCED = 6


def text(value: Any) -> str:
    """A bulk reply as text; empty if there is none."""
    return "" if value is None else bytes(value).decode()


def status_of(reply: list[Any]) -> Status:
    return Status(reply[0])


SCHEMA = 2
"""Layout of the keys in the store. A worker migrates an older one at its start, and refuses to start on a newer one."""


OnRun = Callable[[str, float, Status | None, StoreError | None], None]
"""Called after every run of a script: its name, the seconds it took, the status of its reply (None if the reply has
none), and the error if it failed.
"""


def ignore_run(script: str, seconds: float, status: Status | None, error: StoreError | None) -> None:
    """For tests and tools, which count nothing."""


@dataclass(frozen=True, slots=True)
class Namespace:
    client: StoreClient
    keys: Keys
    scripts: ScriptSet
    on_run: OnRun = ignore_run

    async def run(self, script: str, *args: str | int) -> list[Any]:
        """Run one script. It builds every key that it uses from `meta`; its reply begins with status and version."""
        start = perf_counter()
        try:
            reply = await self.scripts.run(self.client, script, self.keys.meta, *args)
        except StoreError as error:
            self.on_run(script, perf_counter() - start, None, error)
            raise
        if not isinstance(reply, list):
            raise StoreUnsuitableError(
                f"{script} answered {reply!r}.", advice="Another program may be using this namespace."
            )
        self.on_run(script, perf_counter() - start, status_of(reply), None)
        return reply

    async def run_all(self, script: str, arguments: list[list[str]]) -> list[Any]:
        """Run a script that only reads, once for each list of arguments, in one pipeline. Replies have no status."""
        start = perf_counter()
        try:
            replies = await self.scripts.run_all(self.client, script, self.keys.meta, arguments)
        except StoreError as error:
            self.on_run(script, perf_counter() - start, None, error)
            raise
        self.on_run(script, perf_counter() - start, None, None)
        return replies


@dataclass(frozen=True, slots=True)
class Outcome:
    """The reply of most scripts: the status, and the version of the route table afterwards."""

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
