"""The two kinds of JSON that the reference writes. They differ in numbers alone."""

import json
from enum import Enum
from typing import Final

FIRST_VERSION_WITH_STANDARD_JSON: Final = 401
"""4.9.4."""

_LARGEST_EXACT: Final = 2**53 - 1
"""A JSON reader with doubles would round what lies beyond, in either direction."""

quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
"""A text as 5.5.0 writes it in both dialects: raw UTF-8, a plain `/`, `\\u001f` in lower case for control letters."""


class Dialect(Enum):
    PLAIN = "plain"
    """Integer keys stand without quotes, so with one such key it is not JSON at all."""
    STANDARD = "standard"

    def number_key(self, number: int) -> str:
        return str(number) if self is Dialect.PLAIN else f'"{number}"'

    def number(self, number: int) -> str:
        if self is Dialect.PLAIN or -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
            return str(number)
        return f'"{number}"'


def route_dialect(version: int, *, accept_standard_json_only: bool) -> Dialect:
    """Of a route answer, by the request's header; with a zone filter it is plain all the same."""
    if accept_standard_json_only or version >= FIRST_VERSION_WITH_STANDARD_JSON:
        return Dialect.STANDARD
    return Dialect.PLAIN
