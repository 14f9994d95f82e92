"""Frames recorded from real peers, as recorded/README.md describes."""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
RELEASES = {"5.5.0": 513, "5.5.0-binary": 513, "4.9.7": 407, "4.9.3": 399}
"""The version number in the headers of each file."""


@cache
def recorded_frames(release: str) -> dict[str, bytes]:
    """`json request 103` -> frame."""
    sections = re.split(r"^# (.+)$", (FOLDER / f"{release}.txt").read_text(), flags=re.MULTILINE)[1:]
    return {name: bytes.fromhex(dump) for name, dump in zip(sections[::2], sections[1::2], strict=True)}
