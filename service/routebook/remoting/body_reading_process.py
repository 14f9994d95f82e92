"""The child process that reads large bodies for one worker: question in, parts out, until the worker is gone.

It imports little, so that it is there soon, and holds nothing between two bodies. Standard input and output are a
socket to its worker. When that ends, so does the process: no worker, however it dies, leaves one behind.
"""

import contextlib
import gc
import os
import pickle
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from routebook.protocol.body_json import BodyError
from routebook.protocol.request_bodies import read_registration_body
from routebook.remoting.body_parts import part_of_error, parts_of

COMMAND: Final = "body-reader"
LENGTH: Final = struct.Struct(">I")
"""Before each message."""


class Question(NamedTuple):
    """As `read_registration_body` takes it; the body's bytes follow."""

    body_bytes: int
    version: int
    now_ms: int
    compressed: bool
    body_crc32: int
    max_inflated_bytes: int

    def pack(self) -> bytes:
        packed = pickle.dumps(tuple(self), protocol=5)
        return LENGTH.pack(len(packed)) + packed


def run_body_reading_process() -> int:
    # Whoever stops a service signals all of its processes; the worker still needs this one while it drains.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # When memory ends, this process goes before any worker: a worker has another one soon.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # What is read has no circles; looking for some in a million values takes longer than reading them.
    gc.disable()
    with contextlib.suppress(ConnectionError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    # Not by way of a flush of standard output, which would complain that nobody is there.
    os._exit(0)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    while (question := _next_question(source)) is not None:
        body = source.read(question.body_bytes)
        if len(body) < question.body_bytes:
            return
        for part in _answer(question, body):
            sink.write(LENGTH.pack(len(part)))
            sink.write(part)
        sink.flush()


def _next_question(source: BinaryIO) -> Question | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    packed = source.read(LENGTH.unpack(head)[0])
    try:
        return Question(*pickle.loads(packed))  # noqa: S301 from the worker that started us
    except (EOFError, pickle.UnpicklingError):  # it died in the midst of it
        return None


def _answer(question: Question, body: bytes) -> Iterator[bytes]:
    try:
        said = read_registration_body(
            body,
            version=question.version,
            now_ms=question.now_ms,
            compressed=question.compressed,
            body_crc32=question.body_crc32,
            max_inflated_bytes=question.max_inflated_bytes,
        )
    except BodyError as error:
        yield part_of_error(error, resident_bytes=_resident_bytes())
    else:
        yield from parts_of(said, resident_bytes=_resident_bytes())


def _resident_bytes() -> int:
    """0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
