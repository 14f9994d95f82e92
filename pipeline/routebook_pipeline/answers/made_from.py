"""What a kept answer of a day was made from, and whether that is still all there is.

Each part is a number that the commit of the day leaves behind as a record of the answer's table. Together they name a
state of the history, and of two states one can tell which is the newer: a change raises the newest `ord`; a reparse
raises none, and makes fewer of the rows that are kept as raw text.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final

from routebook_pipeline.history import Thresholds

_PARTS: Final = {
    "changes": "",
    "raw": "/raw",
    "pulses": "/pulses",
    "until_ms": "/until",
    "thresholds": "/thresholds",
}
"""Field -> what the name of its record ends with."""
_FINGERPRINT_BYTES: Final = 6


@dataclass(frozen=True)
class MadeFrom:
    changes: int
    """The newest `ord` of entries of that day or before."""
    raw: int
    """So many rows up to there are kept as raw text."""
    pulses: int
    """The newest `ord` of heartbeat gaps, where the answer rests on them; else 0."""
    until_ms: int
    """How much of the day was over."""
    thresholds: int
    """A fingerprint of all of them."""

    def records(self, answer: str, day: str) -> dict[str, int]:
        return {f"{answer}/{day}{end}": getattr(self, field) for field, end in _PARTS.items()}

    @classmethod
    def recorded(cls, records: Mapping[str, int], answer: str, day: str) -> "MadeFrom | None":
        """None: never made, or by a version that recorded less."""
        found = {field: records.get(f"{answer}/{day}{end}") for field, end in _PARTS.items()}
        known = {field: number for field, number in found.items() if number is not None}
        return cls(**known) if len(known) == len(_PARTS) else None

    def covers(self, other: "MadeFrom") -> bool:
        """Everything that the other was made from, or more."""
        return (
            (self.changes, -self.raw) >= (other.changes, -other.raw)
            and self.pulses >= other.pulses
            and self.until_ms >= other.until_ms
        )

    def stands_for(self, other: "MadeFrom") -> bool:
        """Made from this, an answer need not be made from the other."""
        return self.covers(other) and self.thresholds == other.thresholds

    def is_newer_than(self, other: "MadeFrom") -> bool:
        return self.covers(other) and not other.covers(self)


def fingerprint(thresholds: Thresholds) -> int:
    digest = hashlib.sha256(repr(astuple(thresholds)).encode()).digest()
    return int.from_bytes(digest[:_FINGERPRINT_BYTES], "big")
