"""What does parsing one lookup in `protocol` cost, compared with the minimum that Python needs for it?

The minimum: lengths by `struct`, the header by `json.loads` (or `struct` alone for binary), without checks and limits.
All are measured in turn within one run, and the medians are compared, because the machine may be busy.

    .venv/bin/python -m benchmarks.wire_parse
"""

import argparse
import json
import platform
import statistics
import struct
import time
from collections.abc import Callable

from routebook.protocol.connection import Connection
from routebook.protocol.frame import HeaderEncoding, Request
from routebook.protocol.headers import encode_command

PREFIX = struct.Struct(">iI")
FIXED = struct.Struct(">hbhiii")
LOOKUP = Request(105, 1, {"topic": "a-topic-with-a-usual-name"})
JSON_FRAME = encode_command(LOOKUP)
BINARY_FRAME = encode_command(LOOKUP, HeaderEncoding.ROCKETMQ)
BODY = bytes(1_000)
PIPELINED = 64


def bare_json(frame: bytes) -> object:
    length, word = PREFIX.unpack_from(frame)
    header_end = 8 + (word & 0xFFFFFF)
    return json.loads(frame[8:header_end]), frame[header_end : 4 + length]


def bare_binary(frame: bytes) -> object:
    length, word = PREFIX.unpack_from(frame)
    header_end = 8 + (word & 0xFFFFFF)
    fixed = FIXED.unpack_from(frame, 8)
    name_length = int.from_bytes(frame[29:31], "big")
    return fixed, frame[31 : 31 + name_length], frame[35 + name_length : header_end], frame[header_end : 4 + length]


def bare_answer(opaque: int) -> list[bytes]:
    header = json.dumps(
        {"code": 0, "flag": 1, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 479}
    ).encode()
    return [PREFIX.pack(4 + len(header) + len(BODY), len(header)) + header, BODY]


def microseconds(work: Callable[[], object], times: int, frames: int) -> float:
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times / frames * 1e6


def measure(rounds: int, times: int) -> None:
    connection = Connection()
    pipelined = JSON_FRAME * PIPELINED
    half = len(JSON_FRAME) // 2
    first_half, second_half = JSON_FRAME[:half], JSON_FRAME[half:]
    # name -> work, frames in it, what it is compared with
    cases: dict[str, tuple[Callable[[], object], int, str]] = {
        "bare JSON": (lambda: bare_json(JSON_FRAME), 1, ""),
        "receive, JSON": (lambda: connection.receive(JSON_FRAME), 1, "bare JSON"),
        "receive, JSON, 64 in a chunk": (lambda: connection.receive(pipelined), PIPELINED, "bare JSON"),
        "receive, JSON, in two pieces": (
            lambda: (connection.receive(first_half), connection.receive(second_half)),
            1,
            "bare JSON",
        ),
        "bare binary": (lambda: bare_binary(BINARY_FRAME), 1, ""),
        "receive, binary": (lambda: connection.receive(BINARY_FRAME), 1, "bare binary"),
        "bare answer": (lambda: bare_answer(1), 1, ""),
        "answer, JSON, shared body": (lambda: connection.answer_in_parts(LOOKUP, 0, BODY), 1, "bare answer"),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (work, frames, _) in cases.items():
            found[name].append(microseconds(work, max(1, times // frames), frames))
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(f"Python {platform.python_version()}, {platform.machine()}; median of {rounds} rounds")
    print(f"{'':32}{'µs a frame':>12}{'ratio':>8}")
    for name, (_, _, compared) in cases.items():
        ratio = f"{medians[name] / medians[compared]:.2f}" if compared else ""
        print(f"{name:32}{medians[name]:>12.2f}{ratio:>8}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--times", type=int, default=20_000)
    arguments = parser.parse_args()
    measure(arguments.rounds, arguments.times)
