"""Spoiled bodies by the thousand: nothing is raised but our error, nothing stalls, nothing grows.

The seed is fixed: a failure here fails everywhere. FUZZ_INPUTS asks for more than the default run takes.
"""

import gc
import os
import random
import time
import tracemalloc
import zlib
from contextlib import suppress

from routebook.wire.bodies.body_error import BodyError
from routebook.wire.bodies.questions import read_data_version, read_queue_datas
from routebook.wire.bodies.registration import read_registration_body
from tests.wire.bodies.recorded import (
    BROKER_4_9_7,
    BROKER_4_9_7_COMPRESSED,
    BROKER_5_5_0,
    BROKER_5_5_0_COMPRESSED,
    E11,
    E11_PLAIN,
    NOW_MS,
)

INPUTS = int(os.environ.get("FUZZ_INPUTS", "20000"))
TEXTS = [BROKER_4_9_7, BROKER_5_5_0, b'{"counter":3,"stateVersion":0,"timestamp":1}', b'{"queueDatas":[{"perm":6}]}']
CONTENTS = [E11_PLAIN, zlib.decompress(BROKER_4_9_7_COMPRESSED), zlib.decompress(BROKER_5_5_0_COMPRESSED)]
STREAMS = [E11, BROKER_4_9_7_COMPRESSED, BROKER_5_5_0_COMPRESSED]
PIECES = [
    *(b"[", b"]", b"{", b"}", b'"', b"'", b",", b":", b"\\", b" ", b"null", b"true", b"NaN", b"-1", b"1e999", b"0.5"),
    *(b'{"a":', b"{1:", b"a:", b"\\ud800", b"\\u12", b"\xc3\xa4", b"\xff", b"9" * 400, b"9" * 5000, b'"":""'),
    *(b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\5", b" 8 8 6 SINGLE_TAG", b"\0\x01\0\0"),
    *(b'"topicName":null,', b'"perm":"7",', b'"currIdMap":{0:0},', b'"dataVersion":null,', b'"bname":[],'),
]
LONGEST_STALL_SECONDS = 1.5
"""Of four readers on one body, which may go to the slow reader each time with as much as it takes: 0.3 s were seen."""
MAX_INFLATED_BYTES = 64 * 1024


def spoiled(source: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        match source.randrange(4):
            case 0:
                data[at : at + source.randint(1, 4)] = source.randbytes(source.randint(0, 4))
            case 1:
                del data[at : at + source.randint(1, 30)]
            case 2:
                data[at:at] = source.choice(PIECES) * source.choice([1, 1, 1, 2, 700])
            case _:
                other = source.choice([*TEXTS, *CONTENTS])
                start = source.randrange(len(other))
                data[at:at] = other[start : start + source.randint(1, 60)]
    return bytes(data)


def spoiled_body(source: random.Random) -> bytes:
    match source.randrange(4):
        case 0 | 1:
            return spoiled(source, source.choice(TEXTS))
        case 2:
            return zlib.compress(spoiled(source, source.choice(CONTENTS)), source.choice([0, 1, 9]))
        case _:
            return spoiled(source, source.choice(STREAMS))


def read(body: bytes, version: int) -> int:
    """As a port would; how many readers took it."""
    taken = 0
    with suppress(BodyError):
        read_data_version(body, now_ms=NOW_MS)
        taken += 1
    with suppress(BodyError):
        read_queue_datas(body)
        taken += 1
    for compressed in (False, True):
        with suppress(BodyError):
            found = read_registration_body(
                body,
                version=version,
                now_ms=NOW_MS,
                compressed=compressed,
                max_inflated_bytes=MAX_INFLATED_BYTES,
            )
            assert_storable(found.topics.keys() | found.mappings.keys() | set(found.filters or ()))
            taken += 1
    return taken


def assert_storable(names: set[str]) -> None:
    """Half a surrogate pair would stop whoever writes it down."""
    for name in names:
        name.encode()


def test_spoiled_bodies_neither_escape_nor_stall() -> None:
    source = random.Random(20261118)
    taken, longest = 0, (0.0, b"")
    for _ in range(INPUTS):
        body, version = spoiled_body(source), source.choice([-1, 36, 37, 412, 413, 513])
        start = time.thread_time()
        taken += read(body, version)
        longest = max(longest, (time.thread_time() - start, body))
    assert longest[0] < LONGEST_STALL_SECONDS, longest
    assert taken > INPUTS // 20, "too few were read to their end: the fuzzing has lost its aim"


def test_reading_keeps_nothing() -> None:
    source = random.Random(7)
    bodies = [spoiled_body(source) for _ in range(500)]
    read(BROKER_5_5_0, 513)
    for body in bodies:
        read(body, 513)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            for body in bodies:
                read(body, 513)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000
