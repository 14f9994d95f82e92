"""What a JSON value means where a number, a text or a flag is expected: as the reference's parser converts them.

Seen on the libraries of 5.3.3 and 5.5.0: numbers may be quoted, fractions are cut off, true is 1; a number out of range
or a text that is none spoils the whole body. Null is as absent here, as with 5.3.3; 5.5.0 takes it for 0, which no
Java peer would notice (it cannot send one) and which would take a topic's queues away.
"""

import math
import re
from typing import Final

from routebook.wire.bodies.body_error import JsonShapeError

INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)

_QUOTED_NUMBER: Final = re.compile(r"(?P<whole>[+-]?[0-9]{1,20})(?:\.[0-9]*)?")


def int32(field: str, value: object, *, absent: int) -> int:
    return absent if value is None or value == "" else _within(INT32, field, value)


def int64(field: str, value: object, *, absent: int) -> int:
    return absent if value is None or value == "" else _within(INT64, field, value)


def _within(bounds: tuple[int, int], field: str, value: object) -> int:
    number = _whole_number(value)
    if number is None or not bounds[0] <= number <= bounds[1]:
        raise JsonShapeError(field, value, f"a number from {bounds[0]} to {bounds[1]}")
    return number


def _whole_number(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    if isinstance(value, str):
        found = _QUOTED_NUMBER.fullmatch(value)
        return int(found["whole"]) if found else None
    return None


def flag(value: object) -> bool:
    """`true` in any letter case and numbers but 0; everything else is false, as it is for flags in ext fields."""
    return value.lower() == "true" if isinstance(value, str) else isinstance(value, int | float) and value != 0


def text(field: str, value: object) -> str | None:
    if isinstance(value, str):
        return well_formed(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise JsonShapeError(field, value, "a text")


def well_formed(value: str) -> str:
    """Half a surrogate pair, which only an escape can bring, is no text for the store; Java writes it as `?`."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def members(field: str, value: object) -> dict[str, object] | None:
    """An object; None for null, and for the empty text, as the reference has it."""
    if isinstance(value, dict):
        return value
    if value is None or value == "":
        return None
    raise JsonShapeError(field, value, "an object")
