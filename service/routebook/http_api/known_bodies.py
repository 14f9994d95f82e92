"""Registrations that this worker has understood, by the digest of what they came as."""

from collections import OrderedDict
from typing import Final

from routebook.model.broker import Registration

HELD_BYTES: Final = 16 << 20
"""Of bodies, whose registrations take some three times that: 1 000 brokers x 100 topics are 7 MB."""


class KnownBodies:
    """Registrations by the digest of path, query and body. The one not asked for longest goes first."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._held_bytes = held_bytes
        self._known: OrderedDict[str, tuple[Registration, int]] = OrderedDict()
        self._bytes = 0

    def find(self, digest: str) -> Registration | None:
        found = self._known.get(digest)
        if found is None:
            return None
        self._known.move_to_end(digest)
        return found[0]

    def keep(self, digest: str, registration: Registration, size: int) -> None:
        if digest in self._known or size > self._held_bytes:
            return
        self._known[digest] = registration, size
        self._bytes += size
        while self._bytes > self._held_bytes:
            _, (_, gone) = self._known.popitem(last=False)
            self._bytes -= gone
