"""Steps of a history. Names in them contain `@`, which each run replaces by another prefix, because a name server never
deletes some entries, such as static mappings.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tests.conformance.differential.frames import NEWEST, Request


class Body(Protocol):
    def to_bytes(self, prefix: str) -> bytes: ...


@dataclass(frozen=True)
class NoBody:
    def to_bytes(self, prefix: str) -> bytes:
        return b""


@dataclass(frozen=True)
class Bytes:
    """Any bytes."""

    data: bytes

    def to_bytes(self, prefix: str) -> bytes:
        return self.data.replace(b"@", prefix.encode())


class IntegerKeys(dict[int, Any]):
    """A map that Apache's brokers write with unquoted keys."""


@dataclass(frozen=True)
class Json:
    value: object
    quoted_keys: bool = False

    def to_bytes(self, prefix: str) -> bytes:
        return self._text(self.value).replace("@", prefix).encode()

    def _text(self, value: object) -> str:
        if isinstance(value, IntegerKeys) and not self.quoted_keys:
            return "{" + ",".join(f"{key}:{self._text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(str(key))}:{self._text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._text, value)) + "]"
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Compressed:
    """The compressed format of a registration: one zlib stream of lengths and strings."""

    data_version: object
    topics: tuple[str, ...]
    filters: object
    mappings: tuple[object, ...] | None
    """None for the format of 4.x, which has no mappings."""
    cut: int = 0
    """The number of bytes missing at the end of the stream."""
    more: bytes = b""
    """Additional bytes at the end of its content."""

    def to_bytes(self, prefix: str) -> bytes:
        content = _block(Json(self.data_version).to_bytes(prefix))
        content += struct.pack(">i", len(self.topics))
        content += b"".join(_block(topic.replace("@", prefix).encode()) for topic in self.topics)
        content += _block(Json(self.filters).to_bytes(prefix))
        if self.mappings is not None:
            content += struct.pack(">i", len(self.mappings))
            content += b"".join(_block(Json(mapping).to_bytes(prefix)) for mapping in self.mappings)
        packed = zlib.compress(content + self.more, 9)
        return packed[: len(packed) - self.cut]


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


Crc = Literal["none", "right", "wrong", "garbage"]


@dataclass(frozen=True)
class Step:
    """One request. Steps with the same connection name share a connection."""

    code: int
    ext: Mapping[str, object] | None = None
    body: Body = field(default_factory=NoBody)
    connection: str = "tool"
    version: int = NEWEST
    header: Literal["json", "binary"] = "json"
    flag: int = 0
    more: Mapping[str, object] = field(default_factory=dict)
    crc: Crc = "none"
    then: Literal["", "lose", "replace", "expire"] = ""
    """What follows: the connection is lost or replaced by another one, or the broker sends nothing until it expires."""

    def request(self, prefix: str) -> Request:
        body = self.body.to_bytes(prefix)
        ext = None if self.ext is None else {key: _with_prefix(value, prefix) for key, value in self.ext.items()}
        if self.crc != "none" and ext is not None:
            right = zlib.crc32(body) & 0x7FFFFFFF
            ext["bodyCrc32"] = {"right": right, "wrong": right ^ 1, "garbage": "0x12"}[self.crc]
        return Request(self.code, ext, body, self.version, self.header, self.flag, self.more)

    def __str__(self) -> str:
        """The fields that differ from their defaults."""
        parts = [f"{self.code}"]
        parts += [f"{key}={value!r}" for key, value in (self.ext or {}).items()]
        plain = Step(self.code)
        for name in ("connection", "version", "header", "flag", "more", "crc", "then"):
            if getattr(self, name) != getattr(plain, name):
                parts.append(f"{name}:{getattr(self, name)}")
        if not isinstance(self.body, NoBody):
            parts.append(str(self.body))
        return " ".join(parts)


def _with_prefix(value: object, prefix: str) -> object:
    return value.replace("@", prefix) if isinstance(value, str) else value
