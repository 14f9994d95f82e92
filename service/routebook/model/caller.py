"""Who asked for a change, and from where: kept with every change in the history."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    actor: str
    """A worker's id, or the operator's name."""
    source: str = ""
    """The peer's address, empty when the change is the worker's own."""
