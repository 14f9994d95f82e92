"""What can be wrong with a body. All of it is answered with code 1 and the error's `remark`.

What a JSON value means where a number, a text or a flag is expected: as the reference's parser converts them.

Seen on the libraries of 5.3.3 and 5.5.0: numbers may be quoted, fractions are cut off, true is 1; a number out of range
or a text that is none spoils the whole body. Null is as absent here, as with 5.3.3; 5.5.0 takes it for 0, which no
Java peer would notice (it cannot send one) and which would take a topic's queues away.

The reference's lenient JSON: single quotes, names without quotes, a comma too many at an end. Standard JSON is part
of it. Without recursion, so that depth is bounded by a number of ours and not by the interpreter's.

JSON as real peers send it: standard nearly always, else with keys that are integers without quotes, else worse.

Three readers, each tried only when the one before refuses the text:

1. the standard library's, which nearly all bodies stop at;
2. the same, after integer keys got their quotes: brokers with static topics send `"currIdMap":{0:0,2:1}` in the midst
   of tables of megabytes, which must not fall to the slow reader;
3. `lenient_json`, for the rest of what the reference accepts and no known peer sends; of bounded size for that reason.
"""

import copyreg
import json
import math
import re
import reprlib
from itertools import islice
from typing import Final, Never

from routebook.errors import RoutebookError


class BodyError(RoutebookError):
    """A peer's body cannot be used. Nothing of it has taken effect."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without its constructor, whose arguments differ: large bodies are read in another process."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def remark(self) -> str:
        """What the peer is told. The reference sends Java's exception text here, which peers only log."""
        return str(self)


class JsonSyntaxError(BodyError):
    """Not JSON, not even the reference's lenient kind."""


class JsonLimitError(BodyError):
    """JSON that is deeper or has more values than any peer's, and so is not read to its end."""


class JsonShapeError(BodyError):
    """JSON in good order, with the wrong thing in some place."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        # reprlib, since the value may be megabytes, or nested deeper than repr can follow.
        super().__init__(f"{field} is {reprlib.repr(value)}.", advice=f"Allowed: {allowed}.")
        self.field = field
        self.allowed = allowed


class NullBodyError(BodyError):
    """There is a body, and it decodes to nothing: `null`, or not UTF-8. The reference runs into a null pointer."""

    def __init__(self, what: str) -> None:
        super().__init__("The body decodes to null: `null`, or not UTF-8 (as compressed bytes are not).")
        self.what = what

    @property
    def remark(self) -> str:
        return f"NullPointerException: {self.what}. {self}"


class ChecksumError(BodyError):
    """The body is not the one that its sender took the sum of."""

    def __init__(self, announced: int, found: int) -> None:
        super().__init__(f"bodyCrc32 is {announced}, the body's is {found}.")
        self.announced = announced
        self.found = found

    @property
    def remark(self) -> str:
        return "crc32 not match"


class VersionError(BodyError):
    """A header version below zero names no release, so it does not say what form the body has."""

    def __init__(self, version: int) -> None:
        super().__init__(f"The header's version is {version}.", advice="Allowed: 0 or more.")
        self.version = version


class InflateError(BodyError):
    """A compressed body that ends before what it announced, or is no zlib stream."""


class InflateLimitError(InflateError):
    """A compressed body that would grow beyond what an uncompressed one may have."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The body inflates to more than {limit_bytes} bytes.", advice="Register in smaller parts.")
        self.limit_bytes = limit_bytes


class RegistrationBodyError(BodyError):
    """A registration's body that does not decode; the cause says why. The remark begins as the reference's does."""

    def __init__(self, cause: BodyError) -> None:
        super().__init__(f"Failed to decode RegisterBrokerBody: {cause}")
        self.cause = cause


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


MAX_LENIENT_DEPTH: Final = 512
"""Real bodies have five levels; the reference runs out of its stack at some thousand."""
LONGEST_NUMBER: Final = 400
"""Longer ones cost the square of their length, and no field holds them; they stay texts."""

_TOKEN: Final = re.compile(
    r"""[ \t\r\n\f\v]*+(?:
        (?P<mark>[{}\[\],:])
      | "(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"
      | '(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'
      | (?P<word>[^\s{}\[\],:"']++)
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""No two runs of digits side by side: dividing one between them in all ways takes the square of its length."""
_ESCAPE: Final = re.compile(r"\\(?:u(?P<unicode>[0-9A-Fa-f]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", **{c: c for c in "\"'\\/"}}
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

Token = tuple[str, str]
"""Kind and text: `mark`, `double`, `single`, `word` or `end`."""


def parse_leniently(text: str) -> object:
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[dict[str, object] | list[object]] = []
        """The objects and arrays that are not closed yet, outermost first."""

    def parse(self) -> object:
        outermost: list[object] = []
        self._take_item(outermost, self._next())
        while self._open:
            inner = self._open[-1]
            token = self._next()
            if self._closes(inner, token):
                self._close()
            else:
                self._take_item(inner, token)
        if self._next()[0] != "end":
            raise self._unexpected("nothing more")
        return outermost[0]

    def _take_item(self, container: dict[str, object] | list[object], token: Token) -> None:
        """One member or element, and the comma after it if it is complete already."""
        if isinstance(container, dict):
            key = self._key(token)
            value = self._value(self._next())
            container[key] = value
        else:
            value = self._value(token)
            container.append(value)
        if isinstance(value, dict | list):
            self._open.append(value)
            if len(self._open) > MAX_LENIENT_DEPTH:
                raise JsonLimitError(f"JSON deeper than {MAX_LENIENT_DEPTH} levels.")
        else:
            self._take_comma()

    def _close(self) -> None:
        self._open.pop()
        self._take_comma()

    def _take_comma(self) -> None:
        """Between items. Before a closing it may be missing, or be one too many."""
        if not self._open:
            return
        before = self._at
        token = self._next()
        if token == ("mark", ","):
            return
        if not self._closes(self._open[-1], token):
            raise self._unexpected("a comma or the end of what is open")
        self._at = before

    def _key(self, token: Token) -> str:
        kind, text = token
        if kind == "word":
            key = text
        elif kind in ("double", "single"):
            key = self._unescaped(text)
        else:
            raise self._unexpected("a name")
        if self._next() != ("mark", ":"):
            raise self._unexpected("a colon")
        return key

    def _value(self, token: Token) -> object:
        kind, text = token
        if kind in ("double", "single"):
            return self._unescaped(text)
        if kind == "word":
            return self._word(text)
        if token == ("mark", "{"):
            return dict[str, object]()
        if token == ("mark", "["):
            return list[object]()
        raise self._unexpected("a value")

    def _word(self, text: str) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            raise self._unexpected("a value")
        if len(text) > LONGEST_NUMBER:
            return text
        return int(text) if _INTEGER.fullmatch(text) else float(text)

    def _unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        found = _ESCAPE.sub(self._letter, text)
        # Letters beyond 16 bits are escaped as two halves.
        return (
            found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            if _SURROGATE.search(found)
            else found
        )

    def _letter(self, escape: re.Match[str]) -> str:
        if escape["unicode"]:
            return chr(int(escape["unicode"], 16))
        letter = _LETTERS.get(escape["letter"])
        if letter is None:
            raise self._unexpected("an escape of JSON inside a text")
        return letter

    @staticmethod
    def _closes(container: dict[str, object] | list[object], token: Token) -> bool:
        return token == ("mark", "}" if isinstance(container, dict) else "]")

    def _next(self) -> Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._unexpected("the end of a text")
        self._at = found.end()
        kind = found.lastgroup or "end"
        return kind, found[kind]

    def _unexpected(self, wanted: str) -> JsonSyntaxError:
        return JsonSyntaxError(f"Not JSON at character {self._at}.", advice=f"Expected {wanted}.")


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
