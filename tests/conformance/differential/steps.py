"""Steps of a history. Names in them contain `@`, which is replaced when they are lived: each time by another word, so
that what a name server never forgets (static mappings) is not met again.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tests.conformance.differential.frames import NEWEST, Request


class Body(Protocol):
    def to_bytes(self, word: str) -> bytes: ...


@dataclass(frozen=True)
class Nothing:
    def to_bytes(self, word: str) -> bytes:
        return b""


@dataclass(frozen=True)
class Bytes:
    """Text, broken or not."""

    data: bytes

    def to_bytes(self, word: str) -> bytes:
        return self.data.replace(b"@", word.encode())


class IntegerKeys(dict[int, Any]):
    """A map that the reference writes with keys without quotes."""


@dataclass(frozen=True)
class Json:
    value: object
    quoted_keys: bool = False

    def to_bytes(self, word: str) -> bytes:
        return self._written(self.value).replace("@", word).encode()

    def _written(self, value: object) -> str:
        if isinstance(value, IntegerKeys) and not self.quoted_keys:
            return "{" + ",".join(f"{key}:{self._written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(str(key))}:{self._written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._written, value)) + "]"
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Compressed:
    """The registration as one zlib stream of lengths and texts."""

    data_version: object
    topics: tuple[str, ...]
    filters: object
    mappings: tuple[object, ...] | None
    """None: the form of 4.x, which ends before them."""
    cut: int = 0
    """So many bytes are missing at the end of the stream."""
    more: bytes = b""
    """Nobody expects these inside of it."""

    def to_bytes(self, word: str) -> bytes:
        content = _block(Json(self.data_version).to_bytes(word))
        content += struct.pack(">i", len(self.topics))
        content += b"".join(_block(topic.replace("@", word).encode()) for topic in self.topics)
        content += _block(Json(self.filters).to_bytes(word))
        if self.mappings is not None:
            content += struct.pack(">i", len(self.mappings))
            content += b"".join(_block(Json(mapping).to_bytes(word)) for mapping in self.mappings)
        packed = zlib.compress(content + self.more, 9)
        return packed[: len(packed) - self.cut]


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


Crc = Literal["none", "right", "wrong", "garbage"]


@dataclass(frozen=True)
class Step:
    """One request. Those on one line share a connection."""

    code: int
    ext: Mapping[str, object] | None = None
    body: Body = field(default_factory=Nothing)
    line: str = "tool"
    version: int = NEWEST
    header: Literal["json", "binary"] = "json"
    flag: int = 0
    more: Mapping[str, object] = field(default_factory=dict)
    crc: Crc = "none"
    then: Literal["", "lose", "move", "expire"] = ""
    """Afterwards the connection is lost, or given up for a new one, or nothing is heard until the time is out."""

    def request(self, word: str) -> Request:
        body = self.body.to_bytes(word)
        ext = None if self.ext is None else {key: _filled(value, word) for key, value in self.ext.items()}
        if self.crc != "none" and ext is not None:
            right = zlib.crc32(body) & 0x7FFFFFFF
            ext["bodyCrc32"] = {"right": right, "wrong": right ^ 1, "garbage": "0x12"}[self.crc]
        return Request(self.code, ext, body, self.version, self.header, self.flag, self.more)

    def __str__(self) -> str:
        """What differs from the plainest request of its code."""
        said = [f"{self.code}"]
        said += [f"{key}={value!r}" for key, value in (self.ext or {}).items()]
        plain = Step(self.code)
        for name in ("line", "version", "header", "flag", "more", "crc", "then"):
            if getattr(self, name) != getattr(plain, name):
                said.append(f"{name}:{getattr(self, name)}")
        if not isinstance(self.body, Nothing):
            said.append(str(self.body))
        return " ".join(said)


def _filled(value: object, word: str) -> object:
    return value.replace("@", word) if isinstance(value, str) else value
