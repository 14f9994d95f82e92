"""Builds compressed registrations, without the code that they test."""

import zlib
from collections.abc import Sequence

DATA_VERSION = b'{"counter":3,"stateVersion":0,"timestamp":1700000000001}'


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def block(content: bytes) -> bytes:
    return number(len(content)) + content


def content_of(
    topics: Sequence[bytes] = (b"TopicA 8 8 6 SINGLE_TAG {}",),
    *,
    data_version: bytes = DATA_VERSION,
    filters: bytes = b"[]",
    mappings: Sequence[bytes] | None = (),
) -> bytes:
    """Valid by default. Without `mappings`, that part is left out."""
    parts = [block(data_version), number(len(topics)), *map(block, topics), block(filters)]
    if mappings is not None:
        parts += [number(len(mappings)), *map(block, mappings)]
    return b"".join(parts)


def compressed(content: bytes) -> bytes:
    return zlib.compress(content, 9)
