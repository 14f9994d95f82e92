"""Almost valid streams: frames with a wrong length, number or value, or with some bytes changed."""

import random
import struct
from itertools import pairwise

from tests.protocol.golden_frames import golden_frames
from tests.protocol.plain_frames import binary_header, framed
from tests.protocol.recorded_frames import RELEASES, recorded_frames

LARGEST_FRAME, LARGEST_HEADER = 4096, 2048
"""The limits with which the streams are read. Small ones are reached more often."""
PROXY = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9876\r\n"
PROXY_V2 = bytes.fromhex("0d0a0d0a000d0a515549540a2111000cc0000207c6336401dc042694")
PROXIES = [PROXY, PROXY_V2, b"PROXY UNKNOWN x\r\n", PROXY_V2[:12] + b"\x20\x00\x00\x00"]
RECORDED = [frame for release in RELEASES for frame in recorded_frames(release).values() if len(frame) < LARGEST_FRAME]
FRAMES = [*golden_frames().values(), *RECORDED]
SEEDS = [*FRAMES, PROXY, PROXY_V2, PROXY_V2 + golden_frames()["E1"]]

INTERESTING = [0, 1, 3, 4, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1]
JSON_PIECES = [b"[", b"{", b'{"a":', b'"', b"\\u", b"\\ud800", b"1e9", b"null", b'"code":1,', b'"x":[],', b"\n"]
KEYS = ["code", "flag", "language", "opaque", "version", "remark", "extFields", "serializeTypeCurrentRPC", "topic", "x"]
VALUES = [
    *("1", "-1", "0", "105", "1.5", "1e400", "-0", "9" * 30, "9" * 5000, "true", "null", "NaN", '""', '"JAVA"', '"7"'),
    *('"\\ud800"', '"\\u0000"', '"é"', "[]", "{}", "[[[[]]]]", '{"topic":"TopicA"}', '{"topic":1,"topic":"b"}'),
]
LOOKUP_HEADERS = [
    b'{"code":105,"extFields":{"topic":"%b"},"flag":0,"language":"JAVA","opaque":%b,"version":513}',
    b'{"code":105,"extFields":{"acceptStandardJsonOnly":"true","topic":"%b"},"flag":2,"opaque":%b}',
    b'{"code":"105","extFields":{"topic":"%b","x":1.50},"remark":"\xc3\xa4","opaque":%b,"version":"401"}',
]
TOPICS = [b"TopicA", b"TopicB", b"", b'a"', b'a","x":"', b"\\", b"\\u0041", b"\n", b"\xff", b"%RETRY%g", b"t" * 300]
OPAQUES = [b"7", b"12", b"0", b"00", b"01", b"-0", b"1.0", b'"5"', b" 5", b"999999999", b"1000000000", b"2147483648"]


def stream(source: random.Random) -> bytes:
    kind = source.randrange(12)
    if kind == 0:
        return source.randbytes(source.randint(0, 300))
    if kind <= 2:
        return lookups(source)
    if kind <= 4:
        return corrupted(source, b"".join(source.choices(FRAMES, k=source.randint(1, 3))))
    if kind == 5:
        return corrupted(source, source.choice(SEEDS))
    wrong = source.choice([wrong_prefix, json_frame, wrong_binary_frame, deep_frame])(source)
    before = source.choices(FRAMES, k=source.randrange(3))
    return b"".join([*before, wrong, source.choice(FRAMES)])


def beginning(source: random.Random) -> bytes:
    """The first bytes of a connection, perhaps with a PROXY header or TLS."""
    kind = source.randrange(6)
    if kind == 0:
        return source.randbytes(source.randint(0, 40))
    if kind == 1:
        return b"\x16\x03\x01" + source.randbytes(source.randint(0, 60))
    header = source.choice(PROXIES)
    if kind <= 3:
        header = corrupted(source, header)
    return header + source.choice(FRAMES)


def corrupted(source: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data) + 1)
        match source.randrange(7):
            case 0:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                data[at : at + 4] = source.choice(INTERESTING).to_bytes(4, "big")
            case 2:
                del data[at : at + source.randint(1, 20)]
            case 3:
                data[at:at] = source.randbytes(source.randint(1, 20))
            case 4:
                data[at:at] = source.choice(SEEDS)
            case 5:
                data[at:at] = source.choice(JSON_PIECES) * source.randint(1, 50)
            case _:
                data[:4] = (len(data) - 4).to_bytes(4, "big", signed=True)
    return bytes(data)


def wrong_prefix(source: random.Random) -> bytes:
    """A frame whose length or header length is impossible, wrong by one or zero, or whose encoding is unknown."""
    frame = source.choice(FRAMES)
    length, word = struct.unpack_from(">iI", frame)
    header_length = word & 0xFFFFFF
    lengths = [*(0, 3, 4, -1, -(2**31), 2**31 - 1), *(length + by for by in (-1, 1, -header_length))]
    lengths += [LARGEST_FRAME - 4, LARGEST_FRAME - 3]
    header_lengths = [0, 1, header_length + 1, length - 4, length - 3, length, LARGEST_HEADER, LARGEST_HEADER + 1]
    match source.randrange(3):
        case 0:
            length = source.choice(lengths)
        case 1:
            word = (word & 0xFF000000) | (source.choice([*header_lengths, 0xFFFFFF]) & 0xFFFFFF)
        case _:
            word = source.choice([1, 2, 3, 127, 128, 255]) << 24 | header_length
    return struct.pack(">iI", length, word) + frame[8:]


def json_frame(source: random.Random) -> bytes:
    """A JSON header with keys in any order, some of them twice, and any values."""
    members = [f'"{source.choice(KEYS)}":{source.choice(VALUES)}' for _ in range(source.randint(0, 9))]
    if source.random() < 0.7:
        members += ['"code":105', '"opaque":3']
    header = "{" + source.choice([",", ", ", ",\n", ",,"]).join(members) + source.choice(["}", "}", "} ", "", "}{}"])
    return framed(header.encode("utf-8", "surrogatepass"), source.randbytes(source.randrange(5)))


def deep_frame(source: random.Random) -> bytes:
    opening, closing = source.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"extFields":{"x":', b"}}"), (b"[[],", b"]")])
    depth = source.choice([1, 10, 100, 400, LARGEST_HEADER // len(opening)])
    closed = source.choice([0, depth // 2, depth])
    header = opening * depth + source.choice([b"", b"1", b"null"]) + closing * closed
    return framed(b'{"code":105,"x":' + header + b"}" if source.random() < 0.5 else header)


def wrong_binary_frame(source: random.Random) -> bytes:
    """A binary header in which the length of the remark, the ext fields, a name or a value is wrong."""
    names = [b"topic", b"", b"\xff", b"n" * 300]
    ext = [(source.choice(names), source.choice([b"TopicA", b"", b"\xc3"])) for _ in range(source.randrange(4))]
    remark = source.randbytes(source.randrange(6))
    header = bytearray(binary_header(remark=remark, ext=ext, flag=source.choice([0, 1, 2, 3, -1])))
    at = source.choice([13, 17 + len(remark), 21 + len(remark), 23 + len(remark), source.randrange(len(header))])
    value = source.choice([0, -1, 1, 2, 255, 256, 2**15, 2**31 - 1, -(2**31), len(header), len(header) - at])
    width = source.choice([1, 2, 4])
    header[at : at + width] = (value & (256**width - 1)).to_bytes(width, "big")
    return framed(bytes(header), b"body" * source.randrange(3), 1)


def lookups(source: random.Random) -> bytes:
    """Lookups that give a template, with other frames in between."""
    header = source.choice(LOOKUP_HEADERS)
    frames = []
    for _ in range(source.randint(2, 8)):
        usual = source.random() < 0.7
        values = (b"TopicA", b"7") if usual else (source.choice(TOPICS), source.choice(OPAQUES))
        frames.append(framed(header % values, b"" if source.random() < 0.9 else b"body"))
        if source.random() < 0.1:
            frames.append(source.choice(FRAMES))
    if source.random() < 0.3:
        at = source.randrange(len(frames))
        frames[at] = corrupted(source, frames[at])
    return b"".join(frames)


def pieces_of(source: random.Random, data: bytes) -> list[bytes]:
    """The chunks in which data may arrive: single bytes, chunks of one size, cut anywhere, or cut where frames end. In
    the last case, the template is used.
    """
    match source.randrange(6):
        case 0:
            cuts = list(range(1, len(data)))
        case 1:
            cuts = list(range(0, len(data), source.randint(1, 60)))
        case 2 | 3:
            cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.randint(1, 8)))
        case _:
            cuts = [end for end in ends_of_frames(data) if source.random() < 0.8]
    places = [0, *cuts, len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


def ends_of_frames(data: bytes) -> list[int]:
    """As far as the lengths are possible."""
    ends, at = [], 0
    while at + 8 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4 + length
        if length < 4 or at > len(data):
            break
        ends.append(at)
    return ends
