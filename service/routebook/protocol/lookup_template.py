"""How one peer writes its lookups: all alike, but for the topic and the opaque.

A JSON header costs more to parse than all else that an answered lookup needs. So the first ones of a connection are
parsed, and from one of them is learnt what stands around the two values that vary; later ones are matched with that.

Invariant: a header that matches says what a parser would have read. What is learnt from has no backslash and each of
the two keys once, so the text around the values is the structure of the object; a value that matches has no quote, no
backslash, no leading zero, so it cannot end early or mean something else. All that does not match is parsed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from routebook.protocol.command import Request
from routebook.protocol.frame import (
    HEADER_LENGTH_MASK,
    HEADER_WORD_BYTES,
    LENGTH_BYTES,
    PREFIX,
    PREFIX_BYTES,
    FrameLimits,
)
from routebook.protocol.headers import decode_json_header

TOPIC: Final = "topic"
HOLES: Final = re.compile(
    rb'(?:(?<="topic":")|(?<="topic": "))(?P<topic>[^"\\]*)(?=")'
    rb'|(?:(?<="opaque":)|(?<="opaque": ))(?P<opaque>[0-9]+)(?=[,}])'
)
"""Some peers put a blank behind a colon."""
VALUES: Final = {"topic": rb'([^"\\]*)', "opaque": rb"(0|[1-9][0-9]{0,8})"}
"""Nine digits are within 32 bits; a client that has counted further is parsed."""
LONGEST_HEADER: Final = 1_024
"""Of which a form is learnt. Real ones have 140 bytes."""
MOST_AT_ONCE: Final = 32
"""Lookups of a chunk: what is not answered at once is not read twice by the hundred."""
MAX_FORMS: Final = 128
"""Kept for all connections: each release of each client has one or two."""

Lookup = tuple[str, bytes, int]
"""Topic, the digits of the opaque, and where in the chunk the frame ends."""


@dataclass(frozen=True, slots=True, eq=False)
class LookupTemplate:
    example: Request
    """What all of them say, with a topic and an opaque of no meaning."""
    read: Callable[[bytes, int], list[Lookup]]
    """Lookups of this form from some place of a chunk on, a bounded number at a time. None: it is another frame that
    stands there, or an unfinished one.
    """


def learn(header: bytes, lookup: Request, limits: FrameLimits) -> LookupTemplate | None:
    """What the header of that lookup teaches; None when it is not quite a usual one."""
    if not lookup.ext or len(header) > LONGEST_HEADER or b"\\" in header:
        return None
    if header.count(b'"topic"') != 1 or header.count(b'"opaque"') != 1:
        return None
    holes = {str(hole.lastgroup): hole for hole in HOLES.finditer(header)}
    values = {"topic": lookup.ext.get(TOPIC, "").encode(), "opaque": b"%d" % lookup.opaque}
    if {name: hole[0] for name, hole in holes.items()} != values:
        return None
    first, second = sorted(holes, key=lambda name: holes[name].start())
    between = header[holes[first].end() : holes[second].start()]
    around = header[: holes[first].start()], between, header[holes[second].end() :]
    return _form(around, (first, second), limits)


@lru_cache(maxsize=MAX_FORMS)
def _form(around: tuple[bytes, bytes, bytes], order: tuple[str, str], limits: FrameLimits) -> LookupTemplate:
    before, between, after = map(re.escape, around)
    match = re.compile(before + VALUES[order[0]] + between + VALUES[order[1]] + after).fullmatch
    topic_group, opaque_group = (1, 2) if order[0] == TOPIC else (2, 1)
    longest = min(limits.max_header_bytes, limits.max_frame_bytes - PREFIX_BYTES, HEADER_LENGTH_MASK)
    unpack = PREFIX.unpack_from

    def read(chunk: bytes, at: int) -> list[Lookup]:
        """A closure: what it needs for each chunk is at hand without a single attribute."""
        lookups: list[Lookup] = []
        size = len(chunk)
        while size - at > PREFIX_BYTES and len(lookups) < MOST_AT_ONCE:
            length, word = unpack(chunk, at)
            end = at + LENGTH_BYTES + length
            # Equal: a header in JSON, whose encoding is 0, and no body.
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

    return LookupTemplate(cast("Request", decode_json_header(b"1".join(around), b"")), read)
