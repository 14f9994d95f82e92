"""A request or a response, in whatever header encoding it travelled."""

from enum import IntEnum
from typing import NamedTuple

from routebook.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, SPOKEN_VERSION, Language

Ext = dict[str, str]

UNMATCHABLE_OPAQUE = -(2**31)
"""Of a header that names none. The reference takes a number from its own counter, which may by chance be one that the
caller waits for; callers count upwards from 0 and reach this one after two thousand million requests."""


class HeaderEncoding(IntEnum):
    """The first byte after a frame's length. Peers read both, whatever they write."""

    JSON = 0
    ROCKETMQ = 1


class Request(NamedTuple):
    """A named tuple, not a dataclass: one is built for every frame, and a frozen dataclass costs five times as much."""

    code: int
    opaque: int
    ext: Ext | None = None
    """None: the header had no ext fields at all. Where it matters is only on the wire; `fields` reads both."""
    body: bytes = b""
    """A frame cannot tell an empty body from none."""
    version: int = SPOKEN_VERSION
    language: Language = Language.JAVA
    flag: int = 0
    remark: str | None = None

    @property
    def is_oneway(self) -> bool:
        """Nothing is sent back, not even an error."""
        return bool(self.flag & ONEWAY_FLAG)


class Response(NamedTuple):
    code: int
    opaque: int
    ext: Ext | None = None
    """{} is written when a typed header exists and all its fields are absent, None when there is no typed header."""
    body: bytes = b""
    version: int = SPOKEN_VERSION
    language: Language = Language.JAVA
    flag: int = RESPONSE_FLAG
    remark: str | None = None


Command = Request | Response
