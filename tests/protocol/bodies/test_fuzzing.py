"""Reading corrupted bodies keeps no memory. Their other properties are in `tests/protocol/fuzzing`."""

import gc
import random
import tracemalloc
from contextlib import suppress

from routebook.protocol.body_json import BodyError, read_data_version, read_queue_datas
from tests.protocol.bodies.reading import read_registration_body
from tests.protocol.bodies.recorded import BROKER_5_5_0, NOW_MS
from tests.protocol.fuzzing.bodies import TEXTS, body

MAX_INFLATED_BYTES = 64 * 1024


def read(body: bytes) -> None:
    with suppress(BodyError):
        read_data_version(body, now_ms=NOW_MS)
    with suppress(BodyError):
        read_queue_datas(body)
    for compressed in (False, True):
        with suppress(BodyError):
            read_registration_body(
                body, version=513, now_ms=NOW_MS, compressed=compressed, max_inflated_bytes=MAX_INFLATED_BYTES
            )


def test_reading_corrupted_bodies_keeps_no_memory() -> None:
    source = random.Random(7)
    bodies = [body(source, TEXTS) for _ in range(200)]
    read(BROKER_5_5_0)
    for one in bodies:
        read(one)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            for one in bodies:
                read(one)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000
