"""Encoded answers, kept until their topic changes."""

from collections.abc import Callable, Collection
from typing import Final

DEFAULT_MAX_BYTES: Final = 128 << 20
"""A route of 100 brokers is about 20 KB; 10 000 of them would be 200 MB if all were asked for."""


class Answers:
    """Bounded; the oldest goes first. A hit costs one look-up and nothing else, which is why it is not the
    least recently used.
    """

    __slots__ = ("_bodies", "_bytes", "_max_bytes", "get")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._bodies: dict[str, bytes] = {}
        self.get: Callable[[str], bytes | None] = self._bodies.get
        """The dictionary's own: the hot path has no room for a function around it."""
        self._bytes = 0
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def keep(self, topic: str, body: bytes) -> None:
        self._drop(topic)
        self._bodies[topic] = body
        self._bytes += len(body)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._bodies)))

    def take_out(self, topics: Collection[str]) -> dict[str, bytes]:
        """Those answers are no longer good; the caller may want to compare."""
        if len(topics) > len(self._bodies):
            topics = [topic for topic in self._bodies if topic in topics]
        return {topic: body for topic in topics if (body := self._drop(topic)) is not None}

    def _drop(self, topic: str) -> bytes | None:
        body = self._bodies.pop(topic, None)
        if body is not None:
            self._bytes -= len(body)
        return body
