"""How much of the history is kept, and because of whom: the rule alone, without a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from routebook.settings.fields import Settings
from routebook.store.history import HistoryState, Reader

Reason = Literal["history_min_entries", "reader", "history_hard_limit", "history_max_bytes"]


@dataclass(frozen=True, slots=True)
class HistoryBound:
    """The bound in force. What is older than version `below` may go."""

    below: int
    keep: int
    """What is older than this nobody misses. Above it only memory counts, and then somebody does."""
    reason: Reason
    reader: str | None
    """Who holds the most back, if that decides."""


def holding(state: HistoryState, expiry_ms: int) -> Sequence[Reader]:
    """Readers that have been heard of lately; others hold nothing back any more."""
    return [reader for reader in state.readers if state.now_ms - reader.seen_ms <= expiry_ms]


def bound_in_force(state: HistoryState, settings: Settings) -> HistoryBound:
    slowest = min(holding(state, settings.reader_expiry_ms), key=lambda reader: reader.version, default=None)
    least = max(state.newest - settings.history_min_entries, 0)
    is_held = slowest is not None and slowest.version < least
    keep = slowest.version if slowest is not None and is_held else least
    by_number = state.newest - settings.history_hard_limit
    by_bytes = state.first_within(settings.history_max_bytes)
    reason: Reason
    if max(by_number, by_bytes) > keep:
        reason = "history_hard_limit" if by_number >= by_bytes else "history_max_bytes"
    else:
        reason = "reader" if is_held else "history_min_entries"
    return HistoryBound(
        below=max(keep, by_number, by_bytes),
        keep=keep,
        reason=reason,
        reader=slowest.name if slowest is not None and reason == "reader" else None,
    )
