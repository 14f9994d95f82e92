"""Reading and writing the typed values of ext fields, all of which travel as text.

Nothing here refuses: an absent field and one that does not parse both read as the default, as in the reference, where
"required" is only a word. What an absent field then means is told per request, by its handler.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from routebook.wire.command import Ext

Default = TypeVar("Default", int, None)

JAVA_INTEGER = re.compile(r"(?P<sign>[+-]?)0*(?P<digits>\d{1,19})")
"""No blanks, no underscores. Longer ones cannot fit 64 bits; Python refuses to read those of thousands of digits."""
INT_BITS = 32
LONG_BITS = 64


def read_text(ext: Mapping[str, str] | None, name: str) -> str | None:
    return ext.get(name) if ext else None


def read_int(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java int."""
    return _read_integer(ext, name, default, INT_BITS)


def read_long(ext: Mapping[str, str] | None, name: str, default: Default) -> int | Default:
    """A Java long. A field declared with the boxed type has None for its default, one with the plain type 0."""
    return _read_integer(ext, name, default, LONG_BITS)


def _read_integer(ext: Mapping[str, str] | None, name: str, default: Default, bits: int) -> int | Default:
    text = ext.get(name) if ext else None
    found = JAVA_INTEGER.fullmatch(text) if text else None
    if not found:
        return default
    value = int(found["sign"] + found["digits"])
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else default


def read_boolean(ext: Mapping[str, str] | None, name: str, default: bool = False) -> bool:
    """`true` in letters of any case is true; every other text is false, not the default."""
    text = ext.get(name) if ext else None
    return default if text is None else text.lower() == "true"


def write_fields(fields: Mapping[str, str | int | bool | None]) -> Ext:
    """The ext fields of a typed header. Absent values are left out; a header all of whose values are absent is {}."""
    return {name: _write(value) for name, value in fields.items() if value is not None}


def _write(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
