"""What clients observed, per client, so that one bad client is not hidden by many good ones."""

from dataclasses import dataclass, field


@dataclass
class ClientResult:
    """The outcome of one client's lookups."""

    answered: int = 0
    """Lookups answered with the complete route."""
    wrong: list[str] = field(default_factory=list)
    """For each answer that was not the complete route, what was wrong with it."""
    failed: list[str] = field(default_factory=list)
    """Lookups without an answer, after the retries that this kind of client makes."""
    moved: int = 0
    """Lookups answered with GO_AWAY first, and then on another connection."""
    reconnected: int = 0
    """Times that the connection was found closed before a lookup was sent."""
    retried: int = 0
    """Lookups whose connection ended before the answer, and that succeeded on the second try."""
    longest_ms: float = 0.0

    def count_answer(self, difference: str) -> None:
        """Counts an answer; `difference` says how it differs from the expected route, if it does."""
        if difference:
            self.wrong.append(difference)
        else:
            self.answered += 1


@dataclass
class KindResult:
    """The outcome of all clients of one kind during one scenario."""

    kind: str
    clients: list[ClientResult]
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        return sum(client.answered for client in self.clients)

    @property
    def wrong(self) -> list[str]:
        return [text for client in self.clients for text in client.wrong]

    @property
    def failed(self) -> list[str]:
        return [text for client in self.clients for text in client.failed]

    @property
    def moved(self) -> int:
        return sum(client.moved for client in self.clients)

    @property
    def reconnected(self) -> int:
        return sum(client.reconnected for client in self.clients)

    @property
    def retried(self) -> int:
        return sum(client.retried for client in self.clients)

    @property
    def most_failures_of_one(self) -> int:
        return max(len(client.failed) for client in self.clients)

    @property
    def most_retries_of_one(self) -> int:
        return max(client.retried for client in self.clients)

    def __str__(self) -> str:
        return (
            f"{len(self.clients)} {self.kind}: {self.answered} lookups, {self.moved} moved, "
            f"{self.reconnected} reconnected, {self.retried} retried, {len(self.failed)} failed, "
            f"longest {max(client.longest_ms for client in self.clients):.0f} ms"
        )
