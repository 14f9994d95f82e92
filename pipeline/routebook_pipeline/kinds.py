"""The kinds of changes: their number in the lake, their name in the stream, and the fields of each kind.

docs/changes.md documents them for the service, and a test compares the two. The service's code is not imported.
"""

from enum import IntEnum

KNOWN_FORMAT = 1
"""The highest entry format (`v`) that this code understands."""


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
    IDENTITY_CHANGED = 41
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
        """The name in the stream."""
        return self.name.lower().replace("_", "-")


PIPELINE_KINDS = frozenset({Kind.UNKNOWN, Kind.HOLE, Kind.FORK, Kind.UNREADABLE})
"""Kinds that only the pipeline writes. `UNKNOWN` stands for a kind of a newer service: its row keeps the name of that
kind in `kind`, and the text of the entry in `raw`.
"""

BY_TITLE = {kind.title: kind for kind in Kind if kind not in PIPELINE_KINDS}

FORMER_TITLES = {"blind": Kind.EXPIRY_PAUSED}
"""Names that an older service gave to a kind. The fields are the same; the lake stores the present name."""

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
    Kind.IDENTITY_CHANGED: ("cause",),
    Kind.EXPIRY_HELD: (),
    Kind.EXPIRY_RELEASED: (),
    Kind.EXPIRY_PAUSED: ("from_ms", "to_ms"),
    Kind.BASELINE_BEGIN: (),
    Kind.BASELINE_SEAT: _SEAT,
    Kind.BASELINE_QUEUES: (*_GROUP, "queues"),
    Kind.BASELINE_END: (),
}
"""An entry is unreadable if one of these is missing or has the wrong type: guessing would give wrong answers."""

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
"""Fields that may be absent or null, and otherwise have their type. Fields that are in neither table are ignored."""

COMMON_FIELDS = ("actor", "source", "cause")
"""Optional in every entry, besides `v` and `kind`."""

UNPLANNED_CAUSES = ("expired", "connection-lost")
"""Causes of removals that were not planned; a removal for any other cause was."""
