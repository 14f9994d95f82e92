"""Broker connections as the registry sees them, without a port."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class FakeConnection:
    peer: str = "127.0.0.1:50000"
    closed_for: list[str] = field(default_factory=list)
    """The reason of each call to `close`. A test itself reports the end of the connection with `sessions.lost`."""

    def close(self, reason: str) -> None:
        self.closed_for.append(reason)
