"""Builds frames without the code that they test."""

import struct
from collections.abc import Iterable
from itertools import pairwise


def framed(header: bytes, body: bytes = b"", encoding: int = 0) -> bytes:
    word = encoding << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


def json_lookup(topic: str = "TopicA", opaque: int = 1) -> bytes:
    return framed(
        b'{"code":105,"extFields":{"topic":"%s"},"flag":0,"language":"JAVA","opaque":%d,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}' % (topic.encode(), opaque)
    )


def binary_header(
    code: int = 105,
    language: int = 0,
    version: int = 479,
    opaque: int = 1,
    flag: int = 0,
    remark: bytes = b"",
    ext: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    entries = b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in ext
    )
    fixed = struct.pack(">hbhii", code, language, version, opaque, flag)
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(entries)) + entries


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]
