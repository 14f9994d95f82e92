"""Builds and reads frames of the remoting protocol without the product's code."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ONEWAY = 2
RESPONSE = 1
NEWEST = 513
"""The version that a peer of release 5.5.0 sends."""

Ext = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Request:
    code: int
    ext: Ext | None = None
    body: bytes = b""
    version: int = NEWEST
    header: Literal["json", "binary"] = "json"
    flag: int = 0
    more: Mapping[str, object] = field(default_factory=dict)
    """Unknown keys of the JSON header, or unusual values of known ones."""

    @property
    def is_answered(self) -> bool:
        """False for a one-way request, and for a request that is marked as an answer."""
        return not self.flag & (ONEWAY | RESPONSE)

    def to_bytes(self, opaque: int) -> bytes:
        if self.header == "json":
            return framed(0, self._json_header(opaque), self.body)
        return framed(1, self._binary_header(opaque), self.body)

    def _json_header(self, opaque: int) -> bytes:
        header: dict[str, object] = {"code": self.code, "flag": self.flag, "language": "JAVA", "opaque": opaque}
        if self.ext is not None:
            header["extFields"] = dict(self.ext)
        header |= {"serializeTypeCurrentRPC": "JSON", "version": self.version, **self.more}
        return json.dumps(header, ensure_ascii=False).encode()

    def _binary_header(self, opaque: int) -> bytes:
        entries = b""
        for key, value in (self.ext or {}).items():
            if value is not None:
                text = ({True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)).encode()
                entries += struct.pack(">h", len(key.encode())) + key.encode() + struct.pack(">i", len(text)) + text
        fixed = struct.pack(">hbhii", self.code, 0, self.version, opaque, self.flag)
        return fixed + struct.pack(">i", 0) + struct.pack(">i", len(entries)) + entries


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer without its version, which is not compared."""

    code: int
    opaque: int = 0
    flag: int = RESPONSE
    language: str = "JAVA"
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""


def framed(kind: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def cut_frame(buffer: bytearray) -> Answer | None:
    """Removes the first answer from the buffer. None if it is incomplete."""
    if len(buffer) < 4:
        return None
    (total,) = struct.unpack_from(">i", buffer)
    if len(buffer) < 4 + total:
        return None
    (prefix,) = struct.unpack_from(">I", buffer, 4)
    kind, length = prefix >> 24, prefix & 0xFFFFFF
    header, body = bytes(buffer[8 : 8 + length]), bytes(buffer[8 + length : 4 + total])
    del buffer[: 4 + total]
    return _read_json(header, body) if kind == 0 else _read_binary(header, body)


def _read_json(header: bytes, body: bytes) -> Answer:
    fields: dict[str, Any] = json.loads(header)
    assert fields["serializeTypeCurrentRPC"] == "JSON"
    return Answer(
        fields["code"],
        fields["opaque"],
        fields["flag"],
        fields["language"],
        fields.get("remark"),
        fields.get("extFields"),
        body,
    )


def _read_binary(header: bytes, body: bytes) -> Answer:
    code, language, _, opaque, flag, remark_length = struct.unpack_from(">hbhiii", header)
    at = 17 + remark_length
    remark = header[17:at].decode() if remark_length else None
    (ext_length,) = struct.unpack_from(">i", header, at)
    at, ext = at + 4, {}
    end = at + ext_length
    while at < end:
        (key_length,) = struct.unpack_from(">h", header, at)
        key, at = header[at + 2 : at + 2 + key_length].decode(), at + 2 + key_length
        (value_length,) = struct.unpack_from(">i", header, at)
        ext[key], at = header[at + 4 : at + 4 + value_length].decode(), at + 4 + value_length
    return Answer(code, opaque, flag, "JAVA" if language == 0 else str(language), remark, ext or None, body)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<before>[{,]\s*)(?P<key>-?[0-9]+)(?=\s*:)', re.DOTALL)


def read_body(body: bytes) -> tuple[object, bool]:
    """The parsed body, and whether it is standard JSON, which has no unquoted integer keys."""
    text = body.decode()
    try:
        return json.loads(text), True
    except ValueError:
        quoted = _TOKEN.sub(lambda match: f'{match["before"]}"{match["key"]}"' if match["key"] else match[0], text)
        return json.loads(quoted), False
