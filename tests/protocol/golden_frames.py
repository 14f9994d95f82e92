"""The worked examples of the specification, read from their hex dumps."""

import re
from functools import cache
from pathlib import Path

DUMP = Path(__file__).parent / "golden" / "worked_examples.txt"
LINE = re.compile(r"^[0-9a-f]{4}  (?P<bytes>(?:[0-9a-f]{2} ?)+)", re.MULTILINE)


@cache
def golden_frames() -> dict[str, bytes]:
    """Name in the specification -> frame."""
    sections = re.split(r"^# (E\d+[ab]?)\..*$", DUMP.read_text(), flags=re.MULTILINE)[1:]
    names, dumps = sections[::2], sections[1::2]
    frames = {name: _bytes_of(dump) for name, dump in zip(names, dumps, strict=True)}
    assert len(frames) == 16, sorted(frames)
    return frames


def _bytes_of(dump: str) -> bytes:
    return bytes.fromhex(" ".join(found["bytes"] for found in LINE.finditer(dump)))
