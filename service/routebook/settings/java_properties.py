"""Java's properties syntax as `java.util.Properties.load` reads it: RocketMQ's own files are in it."""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """The last of two equal keys wins. Raises ValueError on a broken \\uXXXX, as Java does."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Comments dropped, continuations joined. A comment never goes on; a continued line may look like one."""
    gathered: str | None = None
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANK)
        if gathered is None and (not line or line[0] in "#!"):
            continue
        gathered = (gathered or "") + line
        if _ends_in_odd_backslashes(line):
            gathered = gathered[:-1]
            continue
        yield gathered
        gathered = None
    if gathered is not None:
        yield gathered


def _ends_in_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """The key ends at the first unescaped `=`, `:` or blank; one `=` or `:` may follow blanks."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    letters: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter != "\\":
            letters.append(letter)
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following == "u":
            letters.append(_unicode(text[at + 2 : at + 6]))
            at += 6
        else:
            letters.append(_CONTROL.get(following, following))
            at += 2
    return "".join(letters)


def _unicode(digits: str) -> str:
    if not _UNICODE.fullmatch(digits):
        raise ValueError(f"\\u{digits} is not a letter: four hexadecimal digits must follow \\u")
    return chr(int(digits, 16))
