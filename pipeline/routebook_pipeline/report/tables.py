"""Tables and figures of the page. No table is longer than its bound, and what is left out is said."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Row
from routebook_pipeline.report.markup import Html, name, tag

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
