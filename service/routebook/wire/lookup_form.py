"""How one peer writes its lookups: all alike, but for the topic and the opaque.

A JSON header costs more to parse than all else that an answered lookup needs. So the first ones of a connection are
parsed, and from one of them is learnt what stands around the two values that vary; later ones are matched with that.

Invariant: a header that matches says what a parser would have read. What is learnt from has no backslash and each of
the two keys once, so the text around the values is the structure of the object; a value that matches has no quote, no
backslash, no leading zero, so it cannot end early or mean something else. All that does not match is parsed.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from routebook.wire.command import Request, Response
from routebook.wire.frame import HEADER_LENGTH_MASK, HEADER_WORD_BYTES, LENGTH_BYTES, PREFIX, PREFIX_BYTES, FrameLimits
from routebook.wire.json_header import decode_json_header
from routebook.wire.protocol_error import PeerProtocolError

TOPIC: Final = "topic"
HOLES: Final = re.compile(rb'(?P<topic>(?<="topic":")[^"\\]*(?="))|(?P<opaque>(?<="opaque":)[0-9]+(?=[,}]))')
VALUES: Final = {"topic": rb'([^"\\]*)', "opaque": rb"(0|[1-9][0-9]{0,8})"}
"""Nine digits are within 32 bits; a client that has counted further is parsed."""
LONGEST_HEADER: Final = 1_024
"""Of which a form is learnt. Real ones have 140 bytes."""
MAX_FORMS: Final = 128
"""Kept for all connections: each release of each client has one or two."""

Take = Callable[[bytes, list[Request | Response | PeerProtocolError]], int]
"""Reads lookups of one form from the beginning of a chunk, and says how many bytes they were."""

_new_request = tuple.__new__
"""Past the constructor of a named tuple, which is a Python function and takes twice as long."""


def learn(header: bytes, lookup: Request, limits: FrameLimits) -> Take | None:
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
    return _reader(around, (first, second), limits)


@lru_cache(maxsize=MAX_FORMS)
def _reader(around: tuple[bytes, bytes, bytes], order: tuple[str, str], limits: FrameLimits) -> Take:
    """A closure: what it needs for each chunk is at hand without a single attribute."""
    before, between, after = map(re.escape, around)
    match = re.compile(before + VALUES[order[0]] + between + VALUES[order[1]] + after).fullmatch
    unpack = PREFIX.unpack_from
    topic_group, opaque_group = (1, 2) if order[0] == TOPIC else (2, 1)
    longest = min(limits.max_header_bytes, limits.max_frame_bytes - PREFIX_BYTES, HEADER_LENGTH_MASK)
    example = decode_json_header(b"1".join(around), b"")
    code, _, example_ext, _, version, language, flag, remark = example
    ext = dict(example_ext or {})

    def take(chunk: bytes, events: list[Request | Response | PeerProtocolError]) -> int:
        size, at = len(chunk), 0
        while size - at > PREFIX_BYTES:
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
                fields = {**ext, TOPIC: topic.decode()}
            except UnicodeDecodeError:
                break
            events.append(_new_request(Request, (code, int(opaque), fields, b"", version, language, flag, remark)))
            at = end
        return at

    return take
