"""The building blocks of the page: escaped HTML, tables, charts with their table, and sections.

HTML is safe by construction: every string that is not an `Html` is escaped. That matters because names come from the
brokers, and any client that may register a broker chooses one.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from routebook_pipeline.history import DAY_MS
from routebook_pipeline.report import formats
from routebook_pipeline.report.data import ReportData, Row

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


WORST: Final = 30
"""Rows of a table of brokers; 10,000 brokers make no longer page than 30 do."""


@dataclass(frozen=True)
class Column:
    title: str
    show: Callable[[Row], object]
    """What is not `Html` is escaped."""
    is_figure: bool = True
    is_row_name: bool = False


def named(title: str, *keys: str) -> Column:
    """Names of the fleet, joined by slashes; the row is known by them."""
    return Column(title, lambda row: name("/".join(_said(row[key]) for key in keys)), is_figure=False, is_row_name=True)


def _said(value: Any) -> str:
    return formats.NOTHING if value is None else str(value)


def figure(title: str, key: str, show: Callable[[Any], object] = formats.count) -> Column:
    return Column(title, lambda row: show(row[key]))


def words(title: str, show: Callable[[Row], object]) -> Column:
    return Column(title, show, is_figure=False)


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    total: int | None = None,
    more: str = "",
    limit: int = WORST,
) -> Html:
    """`rows` in their order, the worst first; `total`: how many there are; `more`: the command that has them all."""
    rows = list(rows)
    shown = rows[:limit]
    left_out = max(total or 0, len(rows)) - len(shown)
    head = [tag("th", column.title, scope="col", class_="n" if column.is_figure else None) for column in columns]
    body = [tag("tr", *(_cell(column, row) for column in columns)) for row in shown]
    grid = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    # Wide tables scroll by themselves, with the keyboard, too; the page never does.
    framed = tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)
    if left_out <= 0:
        return framed
    ask = tag("span", ", ask ", tag("code", more)) if more else None
    return Html(framed + tag("p", f"and {left_out:,} more", ask, class_="more"))


def _cell(column: Column, row: Row) -> Html:
    shown = column.show(row)
    if column.is_row_name:
        return tag("th", shown, scope="row")
    return tag("td", shown, class_="n" if column.is_figure else None)


def chart(caption: str, drawn: Html, key: Html | None, tabled: Html, *, is_open: bool = False) -> Html:
    """A picture and its table. There is no other way to put a picture on the page."""
    return tag(
        "figure",
        tag("figcaption", caption),
        tag("div", drawn, class_="picture"),
        key,
        tag("details", tag("summary", "The figures as a table"), tabled, open=is_open),
    )


def nothing(said: str) -> Html:
    return tag("p", said, class_="nothing")


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    gist: str
    body: tuple[Html, ...]


def command(findings: ReportData, question: str, by: str | None = None) -> str:
    """What prints the whole of what a table here begins."""
    window = findings.window
    level = f" --by {by}" if by else ""
    space = "" if findings.namespace == "default" else f" --namespace {findings.namespace}"
    return (
        f"routebook pipeline run {question}{level}{space} --from {_given(window.start_ms)} --to {_given(window.end_ms)}"
    )


def _given(ms: int) -> str:
    said = formats.instant(ms).replace(" ", "T") + "Z"
    return said.removesuffix("T00:00:00Z") + "T00:00Z" if ms % DAY_MS == 0 else said


def seat_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}/{row['broker_id']}"


def group_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}"


def many(number: int, one: str, more: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ranked(low: float | None) -> tuple[bool, float]:
    """For sorting by a ratio that may be null: those last."""
    return (low is None, low or 0.0)
