"""What others count by themselves and hand over when they are asked, as values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortFigures:
    """What the remoting port counts by itself, since a metric's own counter would cost each lookup a lock. All but
    `waiting` and `slow_ms` are totals since the start.
    """

    found: int
    not_found: int
    not_ready: int
    waiting: Mapping[str, int]
    slow_ms: Mapping[str, int]
    refused: int
    violations: Mapping[str, int]
    cut: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """How one worker's table stands to the store's."""

    version: int
    digest: str
    stale_seconds: float
    complete: bool
    recovering: bool
    lag_changes: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """What the leader found when it last looked at the history."""

    entries: int = 0
    bytes: int = 0
    used_ratio: float = 0.0
    readers: int = 0
    reader_lag_changes: int = 0
