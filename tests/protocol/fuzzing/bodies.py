"""Almost valid bodies: JSON with wrong pieces or values, and corrupted compressed bodies."""

import json
import random
import zlib
from copy import deepcopy
from typing import Any

from tests.protocol.bodies.compressed_bodies import block, number
from tests.protocol.bodies.recorded import (
    BROKER_4_9_7,
    BROKER_4_9_7_COMPRESSED,
    BROKER_5_5_0,
    BROKER_5_5_0_COMPRESSED,
    E11,
    E11_PLAIN,
)

REGISTRATIONS = [BROKER_4_9_7, BROKER_5_5_0]
DATA_VERSIONS = [b'{"counter":3,"stateVersion":0,"timestamp":1}']
ROUTES = [
    b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","perm":6},{"brokerName":"b","readQueueNums":1}]}',
]
TEXTS = [*REGISTRATIONS, *DATA_VERSIONS, *ROUTES]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 7, 2**31 - 1, 2**31, -(2**63), 2**63, 10**400, 1.5, -0.0, 1e308),
    *("", "7", "-7.9", " 7", "9" * 30, "true", "null", "x", "TopicA", "\0", "\ud800", "\U0001f600", "t" * 300),
    *([], {}, [[]], [None], [1, "a"], {"": {}}, {"T": None}, {"0": 1, "00": 2}, {"-1": "x"}, [{}] * 50),
]
CONTENTS = [E11_PLAIN, zlib.decompress(BROKER_4_9_7_COMPRESSED), zlib.decompress(BROKER_5_5_0_COMPRESSED)]
STREAMS = [E11, BROKER_4_9_7_COMPRESSED, BROKER_5_5_0_COMPRESSED]
PIECES = [
    *(b"[", b"]", b"{", b"}", b'"', b"'", b",", b":", b"\\", b" ", b"null", b"true", b"NaN", b"-1", b"1e999", b"0.5"),
    *(b'{"a":', b"{1:", b"a:", b"\\ud800", b"\\u12", b"\xc3\xa4", b"\xff", b"9" * 400, b"9" * 5000, b'"":""'),
    *(b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\5", b" 8 8 6 SINGLE_TAG", b"\0\x01\0\0"),
    *(b'"topicName":null,', b'"perm":"7",', b'"currIdMap":{0:0},', b'"dataVersion":null,', b'"bname":[],'),
    *(b'"topicConfigTable":{"a":{}},', b'"perm":6,"perm":7,', b'"counter":9223372036854775808,'),
]
LONGEST_REPETITION = 32 * 1024
"""Larger bodies have tests of their own, `tests/protocol/bodies/test_json_reading.py`."""
LENGTHS = [0, 1, 2, 5, 255, 65_536, 2**31 - 1, -1, -(2**31)]


def body(source: random.Random, likely: list[bytes]) -> bytes:
    """Usually made from one of the `likely` bodies."""
    text = source.choice(likely if source.random() < 0.8 else TEXTS)
    kind = source.randrange(16)
    if kind == 0:
        return source.randbytes(source.randint(0, 300))
    if kind <= 5:
        return corrupted(source, text)
    if kind <= 8:
        return altered(source, text)
    if kind == 9:
        return deep(source)
    if kind <= 11:
        return zlib.compress(wrong_content(source))
    if kind <= 13:
        return zlib.compress(corrupted(source, source.choice(CONTENTS)), source.choice([0, 1, 9]))
    return corrupted(source, source.choice(STREAMS))


def corrupted(source: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        match source.randrange(4):
            case 0:
                data[at : at + source.randint(1, 4)] = source.randbytes(source.randint(0, 4))
            case 1:
                del data[at : at + source.randint(1, 30)]
            case 2:
                piece = source.choice(PIECES)
                data[at:at] = piece * source.choice([1, 1, 1, 2, 2, 2, min(700, LONGEST_REPETITION // len(piece))])
            case _:
                other = source.choice([*TEXTS, *CONTENTS])
                start = source.randrange(len(other))
                data[at:at] = other[start : start + source.randint(1, 60)]
    return bytes(data)


def altered(source: random.Random, text: bytes) -> bytes:
    """Well-formed JSON with some values of another kind, and some keys twice."""
    whole = json.loads(text.replace(b"{0:0,2:1}", b'{"0":0,"2":1}'))
    for _ in range(source.randint(1, 4)):
        place: Any = whole
        while place:
            key = source.choice(list(place)) if isinstance(place, dict) else source.randrange(len(place))
            if not (isinstance(place[key], dict | list) and place[key]) or source.random() < 0.15:
                break
            place = place[key]
        if place:
            place[key] = deepcopy(source.choice(VALUES))
    text_form = json.dumps(whole, ensure_ascii=source.random() < 0.5)
    if source.random() < 0.2:
        key = source.choice(['"perm"', '"topicName"', '"dataVersion"', '"topicConfigTable"', '"brokerName"'])
        text_form = text_form.replace(key, f"{key}:{json.dumps(source.choice(VALUES))},{key}", 1)
    return text_form.encode("utf-8", "surrogatepass")


def deep(source: random.Random) -> bytes:
    opening, closing = source.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"{1:", b"}"), (b"[[],", b"]"), (b"['',", b"]")])
    depth = source.choice([1, 10, 100, 500, 513, 5_000])
    nested = opening * depth + source.choice([b"", b"1", b"null"]) + closing * source.choice([0, depth // 2, depth])
    within = source.choice([b"%b", b'{"topicConfigSerializeWrapper":%b}', b'{"queueDatas":%b}', b'{"counter":%b}'])
    return within % nested


def wrong_content(source: random.Random) -> bytes:
    """The content of a compressed body, perhaps with a wrong length or count."""

    def length(true: int) -> bytes:
        return number(source.choice(LENGTHS) if source.random() < 0.15 else true)

    topics = [
        source.choice([b"TopicA 8 8 6 SINGLE_TAG {}", b"T 1 1 6 MULTI_TAG", b"T", b"", b"\xff 1 1 6 SINGLE_TAG"])
        for _ in range(source.randrange(4))
    ]
    mapping = b'{"bname":"b","currIdMap":{0:0},"topic":"T"}'
    parts = [block(b'{"counter":1}'), length(len(topics))]
    parts += [length(len(topic)) + topic for topic in topics]
    parts += [length(2) + b"[]", length(1), length(len(mapping)) + mapping]
    return b"".join(parts[: source.choice([len(parts), len(parts), source.randrange(len(parts) + 1)])])
