"""Broker connections as the registry sees them, without a port."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class FakeConnection:
    peer: str = "127.0.0.1:50000"
    closed_for: list[str] = field(default_factory=list)
    """The reason of each call to `close`. Tests report its end with `Sessions.connection_closed`."""

    def close(self, reason: str) -> None:
        self.closed_for.append(reason)
