"""JSON as real peers send it: standard nearly always, else with keys that are integers without quotes, else worse.

Three readers, each tried only when the one before refuses the text:

1. the standard library's, which nearly all bodies stop at;
2. the same, after integer keys got their quotes: brokers with static topics send `"currIdMap":{0:0,2:1}` in the midst
   of tables of megabytes, which must not fall to the slow reader;
3. `lenient_json`, for the rest of what the reference accepts and no known peer sends; of bounded size for that reason.
"""

import json
import re
from itertools import islice
from typing import Final, Never

from routebook.wire.bodies.body_error import JsonLimitError, JsonSyntaxError
from routebook.wire.bodies.lenient_json import parse_leniently

MAX_JSON_VALUES: Final = 2**21
"""So many values at most, counted by their commas. A broker of 70,000 topics sends 700,000; 16 MiB of `[[],[],[],…`
would be five million lists, twenty times its size in memory.
"""
MAX_LENIENT_CHARACTERS: Final = 2**20
"""The slow reader takes 25 times as long as the fast one; nothing known to be sent to it has more than some hundred."""

MAX_REPAIRS: Final = 2**18
"""So many keys get their quotes, and so many escapes are stepped over. Each costs a microsecond."""

_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_INTEGER_KEY: Final = re.compile(r"[{,]\s*(?P<key>-?[0-9]+)(?=\s*:)")


def _no_such_number(name: str) -> Never:
    """The standard library takes NaN and its kin by default; neither the standard nor the reference does."""
    raise ValueError(f"{name} is not a number of JSON")


_STANDARD: Final = json.JSONDecoder(strict=False, parse_constant=_no_such_number)
"""Not strict: raw line feeds inside texts are fine with the reference."""


def read_json(body: bytes, *, max_values: int = MAX_JSON_VALUES) -> object:
    """The value; None for `null`, for a blank body, and for bytes that are not UTF-8: as with 5.3.3, while 5.5.0
    refuses the last two.

    Of equal keys the last counts. The depth of standard JSON is bounded by the interpreter, far above any peer's.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if not text or text.isspace():
        return None
    if text.count(",") > max_values:
        raise JsonLimitError(f"JSON with more than {max_values} values.", advice="Send it in smaller parts.")
    try:
        return _read(text)
    except RecursionError:
        raise JsonLimitError("JSON deeper than the interpreter can follow.") from None


def _read(text: str) -> object:
    try:
        return _STANDARD.decode(text)
    except ValueError as error:
        refused_at = error.pos if isinstance(error, json.JSONDecodeError) else 0
    quoted = with_quoted_integer_keys(text, refused_at)
    if quoted is not text:
        try:
            return _STANDARD.decode(quoted)
        except ValueError:
            del quoted
    if len(text) > MAX_LENIENT_CHARACTERS:
        raise JsonSyntaxError(f"{len(text)} characters that are not JSON.", advice='Put names and texts in ".')
    return parse_leniently(text)


def with_quoted_integer_keys(text: str, refused_at: int = 0) -> str:
    """The very same object when there is none. What looks like a key inside of a text is left alone: before it stands
    an odd number of quotes.

    Up to `refused_at` a parser found nothing to refuse: static topics stand at the end of a body, behind megabytes.
    """
    start = max(text.rfind("{", 0, refused_at + 1), text.rfind(",", 0, refused_at + 1), 0)
    tail = text[start:]
    if tail.count("\\") > MAX_REPAIRS:
        return text
    masked = _ESCAPED.sub("__", tail) if "\\" in tail else tail
    pieces = [text[:start]]
    copied = looked = quotes = 0
    for found in islice(_INTEGER_KEY.finditer(masked), MAX_REPAIRS):
        key_start, key_end = found.span("key")
        quotes += masked.count('"', looked, key_start)
        looked = key_start
        if quotes % 2 == 0:
            pieces += tail[copied:key_start], '"', tail[key_start:key_end], '"'
            copied = key_end
    return "".join([*pieces, tail[copied:]]) if copied else text
