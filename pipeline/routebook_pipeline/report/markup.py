"""HTML and SVG, safe by construction: whatever is not marked as markup is escaped. Names come from the fleet, and
anyone who may register a broker chooses one.
"""

import html
import re
import unicodedata
from typing import Final

LONGEST_NAME: Final = 300
"""RocketMQ's own limit for a topic is 127, and 255 for others; what is longer is cut and says so."""

_VISIBLE_ANYWAY: Final = {"\n": " ", "\t": " "}
# Not printable, half a character, or able to turn the text around it.
_HIDDEN: Final = re.compile(
    r"[^\x20-\x7e\xa0-\U0010ffff]|[\x80-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Html(str):
    """Text that is markup already. Only this module makes it from what is not."""

    __slots__ = ()


def escape(value: object) -> Html:
    """As text for people, also inside an attribute: what cannot be seen is spelled out."""
    if isinstance(value, Html):
        return value
    text = value if isinstance(value, str) else str(value)
    if len(text) > LONGEST_NAME:
        text = f"{text[:LONGEST_NAME]}… ({len(text)} characters)"
    return Html(html.escape(_HIDDEN.sub(_spelled_out, text), quote=True))


def _spelled_out(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in _VISIBLE_ANYWAY:
        return _VISIBLE_ANYWAY[letter]
    return f"\\u{{{ord(letter):x}}}"


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """`class_` is class, `data_x` is data-x. None and False leave an attribute out, True gives it without a value."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{said}>{''.join(escape(one) for one in inside if one is not None)}</{name}>")


def join(parts: "list[Html] | tuple[Html, ...]", between: str = "") -> Html:
    return Html(between.join(parts))


def name(value: object) -> Html:
    """A name of the fleet. In a run of its own: a name in another script does not reorder its neighbours."""
    return tag("bdi", "—" if value is None else value)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    spelled = key.rstrip("_").replace("_", "-")
    if value is True:
        return f' {spelled}=""'
    shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
    return f' {spelled}="{escape(shown)}"'


def width_of(text: str) -> float:
    """Roughly, in letters of the page's font: what a label needs in a picture."""
    return sum(1.8 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def shortened(text: str, letters: int) -> str:
    """The middle goes: names of a fleet differ at their ends."""
    if width_of(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
