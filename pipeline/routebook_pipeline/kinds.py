"""The kinds of changes: number in the lake, name in the stream, and the fields without which an entry is not readable.

The service documents them in docs/changes.md; a test compares the two. The service's code is not imported.
"""

from enum import IntEnum

KNOWN_FORMAT = 1
"""The highest `v` this code understands."""


class Kind(IntEnum):
    UNKNOWN = 0
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
    EXPIRY_PAUSED = 52
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


PIPELINE_KINDS = frozenset({Kind.UNKNOWN, Kind.HOLE, Kind.FORK, Kind.UNREADABLE})
"""Rows of the pipeline's own making; the service never writes these kinds. `UNKNOWN`: a newer service's kind, which
keeps its own name beside the code, and its text in `raw`.
"""

BY_TITLE = {kind.title: kind for kind in Kind if kind not in PIPELINE_KINDS}

_GROUP = ("cluster", "broker")
_SEAT = (*_GROUP, "id", "addr")

REQUIRED: dict[Kind, tuple[str, ...]] = {
    Kind.BROKER_REGISTERED: _SEAT,
    Kind.BROKER_CHANGED: _SEAT,
    Kind.BROKER_REMOVED: (*_SEAT, "cause"),
    Kind.GROUP_CHANGED: _GROUP,
    Kind.QUEUES_CHANGED: (*_GROUP, "queues"),
    Kind.WRITE_PERMISSION: (*_GROUP, "rule", "perm"),
    Kind.KV_PUT: ("namespace", "key"),
    Kind.KV_DELETED: ("namespace", "key"),
    Kind.SETTINGS_CHANGED: ("key",),
    Kind.EXPIRY_HELD: (),
    Kind.EXPIRY_RELEASED: (),
    Kind.EXPIRY_PAUSED: ("from_ms", "to_ms"),
    Kind.BASELINE_BEGIN: (),
    Kind.BASELINE_SEAT: _SEAT,
    Kind.BASELINE_QUEUES: (*_GROUP, "queues"),
    Kind.BASELINE_END: (),
}
"""Without these, of the right type, an entry is not readable: an answer would silently be another one."""

_OF_A_GROUP = ("zone", "acting", "group_removed")
_OF_A_SEAT = ("incarnation", "first", "zone", "acting", "timeout_ms", "queues")

OPTIONAL: dict[Kind, tuple[str, ...]] = {
    Kind.BROKER_REGISTERED: _OF_A_SEAT,
    Kind.BROKER_CHANGED: _OF_A_SEAT,
    Kind.BROKER_REMOVED: ("incarnation", "last_heartbeat_ms", "timeout_ms", "lost_ms", "group_removed"),
    Kind.GROUP_CHANGED: _OF_A_GROUP,
    Kind.WRITE_PERMISSION: ("touched",),
    Kind.BASELINE_SEAT: _OF_A_SEAT,
    Kind.BASELINE_QUEUES: _OF_A_GROUP,
}
"""May be absent or null; present, they have their type. A field that stands in neither table is not looked at."""

COMMON_FIELDS = ("actor", "source", "cause")
"""Optional everywhere, beside `v` and `kind`."""

UNPLANNED_CAUSES = ("expired", "connection-lost")
"""A removal for any other cause was meant."""
