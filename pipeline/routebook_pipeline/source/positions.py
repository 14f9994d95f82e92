"""Places in the stream, found with probes of one entry.

Invariant of the stream: the id of an entry is `<ms>-<version>`; along the stream ms never falls and the version rises
by one. Entries may be gone (trimmed, deleted), so a *place* need not be the id of an entry that exists: the place of
version N is an id with every entry up to N at or before it, and every later one behind it. That is all a reader
needs, and it stays true when entries go while we look.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple


class EntryId(NamedTuple):
    """Compares as the stream does."""

    ms: int
    version: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.version}"

    @staticmethod
    def parse(text: str | bytes) -> "EntryId":
        """Raises ValueError on anything but `<ms>-<version>`."""
        ms, separator, version = (text.decode() if isinstance(text, bytes) else text).partition("-")
        if not (separator and ms.isdecimal() and version.isdecimal()):
            raise ValueError(f"{text!r} is not the id of an entry, which is <ms>-<version>, both numbers")
        return EntryId(int(ms), int(version))


BEGINNING: Final = EntryId(0, 0)
"""Before every entry."""

Probe = Callable[[EntryId], EntryId | None]
"""The id of the first entry at or after a place; None when there is none."""


def find_place(probe: Probe, version: int, low_ms: int, high_ms: int) -> EntryId:
    """The place of `version`, which lies between the two times: its entry's own id when that exists.

    Halving, for an id begins with a time and only the second part is known: the largest ms whose first entry is not
    beyond the version. Entries of that version or below are then at or before `<ms>-<version>`, the others behind it.
    """
    while low_ms < high_ms:
        middle = (low_ms + high_ms + 1) // 2
        found = probe(EntryId(middle, 0))
        if found is not None and found.version <= version:
            low_ms = middle
        else:
            high_ms = middle - 1
    return EntryId(low_ms, version)


def cut(probe: Probe, start: EntryId, end: EntryId, entries_each: int) -> list[tuple[EntryId, EntryId]]:
    """Ranges (exclusive, inclusive] that follow one another from `start` to `end`, of equal numbers of versions, each
    at most `entries_each`.
    """
    versions = end.version - start.version
    if versions <= 0:
        return []
    parts = -(-versions // entries_each)
    places = [start]
    for part in range(1, parts):
        places.append(find_place(probe, start.version + versions * part // parts, places[-1].ms, end.ms))
    places.append(end)
    return list(pairwise(places))
