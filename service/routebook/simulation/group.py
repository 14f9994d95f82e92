"""Brokers of one name: what they share, and in which order they speak."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from routebook.model.data_version import DataVersion
from routebook.model.topic import QueueData
from routebook.simulation.registering import registration_body


@dataclass
class TopicTable:
    """The master's, which its slaves copy; it survives all of them, as a broker's files do."""

    topics: dict[str, QueueData]
    version: DataVersion = field(default_factory=lambda: DataVersion(0, int(time.time() * 1000), 1))
    _body: bytes = b""
    _body_version: DataVersion | None = None

    def put(self, topic: str, queue: QueueData) -> None:
        self.topics = {**self.topics, topic: queue}
        self.raise_version()

    def remove(self, topic: str) -> bool:
        if topic not in self.topics:
            return False
        self.topics = {name: queue for name, queue in self.topics.items() if name != topic}
        self.raise_version()
        return True

    def raise_version(self, *, state_versions: int = 0) -> None:
        before = self.version
        now_ms = max(int(time.time() * 1000), before.timestamp)
        self.version = replace(
            before, counter=before.counter + 1, timestamp=now_ms, state_version=before.state_version + state_versions
        )

    def body(self) -> bytes:
        """Of a full registration: the same bytes until something changes, as a broker's are."""
        if self._body_version != self.version:
            self._body = registration_body(self.version, self.topics)
            self._body_version = self.version
        return self._body


@dataclass
class GroupState:
    name: str
    cluster: str
    table: TopicTable
    wire: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while anything is said of this group, by whichever of its members or by an operator: so the journal's order
    is the one in which name servers heard it.
    """
    trouble: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time. Outside `wire`."""
