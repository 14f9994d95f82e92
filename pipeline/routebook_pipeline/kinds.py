"""The kinds of changes: number in the lake, name in the stream, and the fields without which an entry is not readable.

The service documents them in docs/changes.md; a test compares the two. The service's code is not imported.
"""

from enum import IntEnum

KNOWN_FORMAT = 1
"""The highest `v` this code understands."""


class Kind(IntEnum):
    BROKER_REGISTERED = 10
    BROKER_CHANGED = 11
    BROKER_REMOVED = 12
    GROUP_CHANGED = 13
    QUEUES_CHANGED = 20
    WRITE_PERMISSION = 21
    KV_PUT = 30
    KV_DELETED = 31
    SETTINGS_CHANGED = 40
    EXPIRY_HELD = 50
    EXPIRY_RELEASED = 51
    BLIND = 52
    BASELINE_BEGIN = 60
    BASELINE_SEAT = 61
    BASELINE_QUEUES = 62
    BASELINE_END = 63
    HOLE = 90
    FORK = 91
    UNREADABLE = 99

    @property
    def title(self) -> str:
        """As the stream spells it."""
        return self.name.lower().replace("_", "-")


MADE_HERE = frozenset({Kind.HOLE, Kind.FORK, Kind.UNREADABLE})
"""Rows of the pipeline's own making; the service never writes these kinds."""

BY_TITLE = {kind.title: kind for kind in Kind if kind not in MADE_HERE}

UNPLANNED_CAUSES = ("expired", "connection-lost")
"""A removal for any other cause was meant."""
