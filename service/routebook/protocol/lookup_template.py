"""Lookup templates: a client writes all its lookups alike, except for the topic and the opaque number.

To parse a JSON header costs more than everything else that a lookup needs. So the first lookups of a connection are
parsed, and a template is derived from one of them: the text around the two values that vary. Later lookups are matched
with the template.

Invariant: a header that matches means what a parser would have read. A template is derived only from a header without a
backslash, in which each of the two keys occurs once, so the text around the values is the structure of the object. A
value that matches has no quote, no backslash and no leading zero, so it cannot end early or mean something else. What
does not match is parsed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from routebook.protocol.frame import (
    HEADER_LENGTH_MASK,
    HEADER_WORD_BYTES,
    LENGTH_BYTES,
    PREFIX,
    PREFIX_BYTES,
    FrameLimits,
    Request,
)
from routebook.protocol.headers import decode_json_header

TOPIC: Final = "topic"
OPAQUE: Final = "opaque"
SIGNATURE: Final = "Signature"
_VARIABLE_PARTS: Final = re.compile(
    rb'(?:(?<="topic":")|(?<="topic": "))(?P<topic>[^"\\]*)(?=")'
    rb'|(?:(?<="Signature":")|(?<="Signature": "))(?P<Signature>[A-Za-z0-9+/=]*)(?=")'
    rb'|(?:(?<="opaque":)|(?<="opaque": ))(?P<opaque>[0-9]+)(?=[,}])'
)
"""Some clients write a blank behind the colon."""
_VALUES: Final = {
    TOPIC: rb'(?P<topic>[^"\\]*)',
    OPAQUE: rb"(?P<opaque>0|[1-9][0-9]{0,8})",
    SIGNATURE: rb"(?P<Signature>[A-Za-z0-9+/=]*)",
}
"""Nine digits fit 32 bits. The requests of a client that has counted further are parsed. A signature is different for
each topic.
"""
LONGEST_HEADER: Final = 1_024
"""Longer headers give no template. Real ones have 140 bytes."""
MAX_LOOKUPS_AT_ONCE: Final = 32
"""Limit for each call of `read`. What cannot be answered at once has to be read again, so it must not be too much."""
MAX_TEMPLATES: Final = 128
"""Kept for all connections together; each release of each client has one or two."""

Lookup = tuple[str, bytes, int]
"""The topic, the digits of the opaque number, and where the frame ends in the chunk."""
SignedLookup = tuple[str, bytes, int, bytes]
"""The same and the signature."""


@dataclass(frozen=True, slots=True, eq=False)
class LookupTemplate:
    example: Request
    """A request with all fixed parts of the template. Its topic, signature and opaque number are placeholders."""
    read: Callable[[bytes, int], list[Lookup]]
    """The next lookups of a chunk, from a position on. Empty if a frame of another kind, or an incomplete one, is
    there.
    """
    read_signed: Callable[[bytes, int], list[SignedLookup]] | None
    """The same with their signatures. None if these lookups have none."""


def derive_template(header: bytes, lookup: Request, limits: FrameLimits) -> LookupTemplate | None:
    """None if the header of that lookup is too unusual."""
    if not lookup.ext or len(header) > LONGEST_HEADER or b"\\" in header:
        return None
    values = {TOPIC: lookup.ext.get(TOPIC, "").encode(), OPAQUE: b"%d" % lookup.opaque}
    if SIGNATURE in lookup.ext:
        values[SIGNATURE] = lookup.ext[SIGNATURE].encode()
    if any(header.count(b'"%b"' % name.encode()) != 1 for name in values):
        return None
    parts = {str(part.lastgroup): part for part in _VARIABLE_PARTS.finditer(header)}
    if {name: part[0] for name, part in parts.items()} != values:
        return None
    order = tuple(sorted(parts, key=lambda name: parts[name].start()))
    begins = [0, *(parts[name].end() for name in order)]
    ends = [*(parts[name].start() for name in order), len(header)]
    fixed = tuple(header[begin:end] for begin, end in zip(begins, ends, strict=True))
    return _template(fixed, order, limits)


@lru_cache(maxsize=MAX_TEMPLATES)
def _template(fixed: tuple[bytes, ...], order: tuple[str, ...], limits: FrameLimits) -> LookupTemplate:
    values = [_VALUES[name] for name in order]
    pattern = b"".join(re.escape(text) + value for text, value in zip(fixed, [*values, b""], strict=True))
    match = re.compile(pattern).fullmatch
    topic_group, opaque_group = order.index(TOPIC) + 1, order.index(OPAQUE) + 1
    signature_group = order.index(SIGNATURE) + 1 if SIGNATURE in order else 0
    longest = min(limits.max_header_bytes, limits.max_frame_bytes - PREFIX_BYTES, HEADER_LENGTH_MASK)
    unpack = PREFIX.unpack_from

    def read(chunk: bytes, at: int) -> list[Lookup]:
        """A closure, because its variables are found faster than attributes."""
        lookups: list[Lookup] = []
        size = len(chunk)
        while size - at > PREFIX_BYTES and len(lookups) < MAX_LOOKUPS_AT_ONCE:
            length, word = unpack(chunk, at)
            end = at + LENGTH_BYTES + length
            # If the two are equal, the header is JSON, whose encoding is 0, and there is no body.
            if word != length - HEADER_WORD_BYTES or word > longest or end > size:
                break
            found = match(chunk, at + PREFIX_BYTES, end)
            if found is None:
                break
            topic, opaque = found.group(topic_group, opaque_group)
            try:
                lookups.append((topic.decode(), opaque, end))
            except UnicodeDecodeError:
                break
            at = end
        return lookups

    def read_signed(chunk: bytes, at: int) -> list[SignedLookup]:
        lookups: list[SignedLookup] = []
        size = len(chunk)
        while size - at > PREFIX_BYTES and len(lookups) < MAX_LOOKUPS_AT_ONCE:
            length, word = unpack(chunk, at)
            end = at + LENGTH_BYTES + length
            if word != length - HEADER_WORD_BYTES or word > longest or end > size:
                break
            found = match(chunk, at + PREFIX_BYTES, end)
            if found is None:
                break
            topic, opaque, signature = found.group(topic_group, opaque_group, signature_group)
            try:
                lookups.append((topic.decode(), opaque, end, signature))
            except UnicodeDecodeError:
                break
            at = end
        return lookups

    # Any text will do for the values; the opaque number has to be one.
    example = cast("Request", decode_json_header(b"1".join(fixed), b""))
    return LookupTemplate(example, read, read_signed if signature_group else None)
