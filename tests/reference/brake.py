"""The brake over removals in plain Python (`lua/include/brake.lua`), without a clock: tests say when time passes."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["removed", "held", "unknown"]


@dataclass
class ReferenceBrake:
    percent: int
    minimum: int
    present: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    """Present, but not established."""
    due: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    """Due, and an operator has agreed to their removal."""
    held: set[str] = field(default_factory=set)
    removals: dict[str, bool] = field(default_factory=dict)
    """Established instances that were removed, and whether that was within the window."""
    in_force: bool = False

    def register(self, name: str) -> None:
        if name not in self.present:
            self.present.add(name)
            if name not in self.removals:
                self.new.add(name)
        self.heartbeat(name)

    def heartbeat(self, name: str) -> None:
        if name in self.present:
            for names in (self.due, self.released, self.held):
                names.discard(name)

    def establish(self, name: str) -> None:
        self.new.discard(name)
        self.heartbeat(name)

    def fall_silent(self, name: str) -> None:
        if name in self.present:
            self.due.add(name)
            self.released.discard(name)

    def window_passes(self) -> None:
        self.removals = dict.fromkeys(self.removals, False)

    def remove(self, name: str) -> Outcome:
        """A lost connection, or the broker's own unregistration."""
        if name not in self.present:
            return "unknown"
        if name not in self.new:
            if self.in_force or self._are_too_many(1):
                self.held.add(name)
                self.in_force = True
                return "held"
            self.removals[name] = True
        self._delete(name)
        return "removed"

    def remove_by_operator(self, name: str) -> Outcome:
        if name not in self.present:
            return "unknown"
        self._delete(name)
        return "removed"

    def scan(self) -> set[str]:
        """Returns what expires."""
        waiting = {name for name in self.due - self.released if name not in self.new} | self.held
        self.in_force, was_in_force = self._are_too_many(len(waiting)), self.in_force
        if was_in_force and not self.in_force:
            self.held.clear()
        expired = {name for name in self.due if not self.in_force or name in self.released or name in self.new}
        for name in expired:
            if name not in self.released and name not in self.new:
                self.removals[name] = True
            self._delete(name)
        return expired

    def release(self) -> None:
        if self.in_force:
            self.in_force = False
            self.due |= self.held
            self.released |= self.due
            self.held.clear()
            self.removals.clear()

    def _are_too_many(self, waiting: int) -> bool:
        if not self.in_force:
            self.removals = {name: True for name, is_recent in self.removals.items() if is_recent}
        gone = len(self.removals) + waiting
        total = len(self.removals) + len(self.present - self.new)
        return waiting > 0 and gone >= self.minimum and gone * 100 > self.percent * total

    def _delete(self, name: str) -> None:
        for names in (self.present, self.new, self.due, self.released, self.held):
            names.discard(name)
