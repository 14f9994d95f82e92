"""What a script says of what it did: the same list as `lua/include/statuses.lua`."""

from enum import IntEnum
from typing import Any


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
