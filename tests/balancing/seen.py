"""What clients saw, one by one: who fails twice must not hide among those who did not fail."""

from dataclasses import dataclass, field


@dataclass
class Seen:
    """By one client."""

    answered: int = 0
    """With the whole route."""
    wrong: list[str] = field(default_factory=list)
    """Answered with something else."""
    failed: list[str] = field(default_factory=list)
    """Not answered by the second try either; for who follows, not by the first."""
    moved: int = 0
    """Told to go away, and answered on another connection."""
    connected_anew: int = 0
    """Found the connection closed before they asked."""
    retried: int = 0
    """The connection ended while they waited, and the second try was answered."""
    longest_ms: float = 0.0

    def take(self, lacks: str) -> None:
        """An answer; `lacks`: why it is not the route, if it is not."""
        if lacks:
            self.wrong.append(lacks)
        else:
            self.answered += 1


@dataclass
class SeenByKind:
    """By the clients of one kind, in one stretch of time."""

    kind: str
    each: list[Seen]
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        return sum(one.answered for one in self.each)

    @property
    def wrong(self) -> list[str]:
        return [text for one in self.each for text in one.wrong]

    @property
    def failed(self) -> list[str]:
        return [text for one in self.each for text in one.failed]

    @property
    def moved(self) -> int:
        return sum(one.moved for one in self.each)

    @property
    def connected_anew(self) -> int:
        return sum(one.connected_anew for one in self.each)

    @property
    def retried(self) -> int:
        return sum(one.retried for one in self.each)

    @property
    def most_failed(self) -> int:
        """By one client."""
        return max(len(one.failed) for one in self.each)

    @property
    def most_retried(self) -> int:
        return max(one.retried for one in self.each)

    def __str__(self) -> str:
        return (
            f"{len(self.each)} {self.kind}: {self.answered} lookups, {self.moved} moved, "
            f"{self.connected_anew} connected anew, {self.retried} retried, {len(self.failed)} failed, "
            f"longest {max(one.longest_ms for one in self.each):.0f} ms"
        )
