"""The reference's lenient JSON: single quotes, names without quotes, a comma too many at an end. Standard JSON is part
of it. Without recursion, so that depth is bounded by a number of ours and not by the interpreter's.
"""

import re
from typing import Final

from routebook.wire.bodies.body_error import JsonLimitError, JsonSyntaxError

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
