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
"""Longer texts are cut, and show that they are. RocketMQ's limits are 127 for topics and 255 for other names."""

_SHOWN_AS_SPACE: Final = "\n\t"
# Control characters, surrogates, and characters that change the direction of the text around them.
_HIDDEN: Final = re.compile(
    r"[^\x20-\x7e\xa0-\U0010ffff]|[\x80-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Html(str):
    """Text that is markup already. Only this module creates it."""

    __slots__ = ()


def escape(value: object) -> Html:
    """Escapes a value for text and attributes. Invisible characters are written as `\\u{…}`."""
    if isinstance(value, Html):
        return value
    text = value if isinstance(value, str) else str(value)
    if len(text) > LONGEST_NAME:
        text = f"{text[:LONGEST_NAME]}… ({len(text)} characters)"
    return Html(html.escape(_HIDDEN.sub(_spelled_out, text), quote=True))


def _spelled_out(found: re.Match[str]) -> str:
    letter = found[0]
    return " " if letter in _SHOWN_AS_SPACE else f"\\u{{{ord(letter):x}}}"


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """An element. `class_` becomes class, `data_x` data-x. None and False omit an attribute; True leaves it empty."""
    spelled = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{spelled}>{''.join(escape(child) for child in inside if child is not None)}</{name}>")


def join(parts: "list[Html] | tuple[Html, ...]", between: str = "") -> Html:
    return Html(between.join(parts))


def name(value: object) -> Html:
    """A name from the fleet, isolated so that a right-to-left name does not reorder the text around it."""
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
    """The approximate width of a text in a chart, in letters."""
    return sum(1.8 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def shortened(text: str, letters: int) -> str:
    """Cuts the middle, since the names of a fleet usually differ at their ends."""
    if width_of(text) <= letters:
        return text
    half = (letters - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


WORST: Final = 30
"""The maximum number of rows of a table of brokers, so that 10,000 brokers make no longer page than 30."""


@dataclass(frozen=True)
class Column:
    title: str
    show: Callable[[Row], object]
    """Anything but `Html` is escaped."""
    is_figure: bool = True
    is_row_name: bool = False


def named(title: str, *keys: str) -> Column:
    """The column with the row's name: names from the fleet, joined by slashes."""
    return Column(title, lambda row: name("/".join(_text(row[key]) for key in keys)), is_figure=False, is_row_name=True)


def _text(value: Any) -> str:
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
    """A table of the first `limit` rows. `total`: the number of all rows; `more`: the command that prints them."""
    rows = list(rows)
    shown = rows[:limit]
    left_out = max(total or 0, len(rows)) - len(shown)
    head = [tag("th", column.title, scope="col", class_="n" if column.is_figure else None) for column in columns]
    body = [tag("tr", *(_cell(column, row) for column in columns)) for row in shown]
    grid = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    # A wide table scrolls, also with the keyboard; the page itself never scrolls sideways.
    framed = tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)
    if left_out <= 0:
        return framed
    how = tag("span", ": ", tag("code", more)) if more else None
    return Html(framed + tag("p", f"and {left_out:,} more", how, class_="more"))


def _cell(column: Column, row: Row) -> Html:
    shown = column.show(row)
    if column.is_row_name:
        return tag("th", shown, scope="row")
    return tag("td", shown, class_="n" if column.is_figure else None)


def chart(caption: str, drawn: Html, key: Html | None, tabled: Html, *, is_open: bool = False) -> Html:
    """A chart with its table. Every chart on the page is made here, so none lacks its table."""
    return tag(
        "figure",
        tag("figcaption", caption),
        tag("div", drawn, class_="picture"),
        key,
        tag("details", tag("summary", "Figures as a table"), tabled, open=is_open),
    )


def nothing(message: str) -> Html:
    return tag("p", message, class_="nothing")


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    summary: str
    body: tuple[Html, ...]


def command(data: ReportData, question: str, by: str | None = None) -> str:
    """The command that prints all rows of a question."""
    window = data.window
    level = f" --by {by}" if by else ""
    namespace = "" if data.namespace == "default" else f" --namespace {data.namespace}"
    return (
        f"routebook pipeline run {question}{level}{namespace}"
        f" --from {_option(window.start_ms)} --to {_option(window.end_ms)}"
    )


def _option(ms: int) -> str:
    spelled = formats.instant(ms).replace(" ", "T") + "Z"
    return spelled.removesuffix("T00:00:00Z") + "T00:00Z" if ms % DAY_MS == 0 else spelled


def seat_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}/{row['broker_id']}"


def group_name(row: Row) -> str:
    return f"{row['cluster']}/{row['broker']}"


def many(number: int, one: str, more: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ranked(low: float | None) -> tuple[bool, float]:
    """A sort key for a ratio that may be null: null comes last."""
    return (low is None, low or 0.0)
