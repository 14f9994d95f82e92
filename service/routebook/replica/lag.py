"""How far a table is behind what its worker knows to be in the store.

Only this worker's clock is used, so the time is how long a change has been known here and not shown: by reading the
history, and by looking, once a second, at the version that the store is at.
"""

from typing import NamedTuple


class _Known(NamedTuple):
    version: int
    since: float


class Lag:
    def __init__(self) -> None:
        self._oldest: _Known | None = None
        """Not reached yet. With `_newest` alone, a table that is always a little behind would look ever older."""
        self._newest: _Known | None = None

    def heard_of(self, version: int, shown: int, now: float) -> None:
        """The store is at that version."""
        if version <= shown or (self._newest and version <= self._newest.version):
            return
        self._newest = _Known(version, now)
        self._oldest = self._oldest or self._newest

    def reached(self, version: int) -> None:
        """It is shown."""
        if self._oldest and version >= self._oldest.version:
            self._oldest = self._newest if self._newest and self._newest.version > version else None
        if self._oldest is None:
            self._newest = None

    def begin_anew(self) -> None:
        """Another table, perhaps of another history, in which the same numbers mean something else."""
        self._oldest = self._newest = None

    def changes(self, shown: int) -> int:
        return max(self._newest.version - shown, 0) if self._newest else 0

    def seconds(self, now: float) -> float:
        return now - self._oldest.since if self._oldest else 0.0
