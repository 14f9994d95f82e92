"""The version a broker gives its topic table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Equal only when all three numbers are; a *different* version, older or newer, counts as changed."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def pack(self) -> str:
        """The form kept in the store."""
        return f"{self.state_version} {self.timestamp} {self.counter}"

    @classmethod
    def unpack(cls, packed: str) -> "DataVersion | None":
        """The empty text means that the broker named no version: every registration then counts as changed."""
        if not packed:
            return None
        state_version, timestamp, counter = packed.split(" ")
        return cls(int(state_version), int(timestamp), int(counter))
