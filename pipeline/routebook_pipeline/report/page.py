"""Renders the page: one file without scripts and without anything from elsewhere, to be mailed, archived or printed."""

from importlib import resources
from typing import Final

from routebook_pipeline.report import formats, summary
from routebook_pipeline.report.data import ReportData
from routebook_pipeline.report.markup import Html, Section, escape, join, name, tag
from routebook_pipeline.report.sections import ALL
from routebook_pipeline.report.summary import Verdict, tiles

# Repeated in the file for servers that send no such header.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def render(data: ReportData) -> str:
    sections = [make(data) for make in ALL]
    period = formats.period(data.window.start_ms, data.window.end_ms)
    main = tag("main", _summary(data), _contents(sections), *(_section(one) for one in sections))
    body = join([_header(data, period), main, _footer(data)], "\n")
    title = escape(f"Fleet {data.namespace}, {period}")
    style = resources.files("routebook_pipeline.report").joinpath("style.css").read_text("utf-8")
    return _PAGE.format(policy=POLICY, title=title, style=style, body=body)


def _header(data: ReportData, period: str) -> Html:
    return tag(
        "header",
        tag("p", "Routebook · fleet report", class_="kicker"),
        tag("h1", name(data.namespace)),
        tag("p", period, tag("span", "all times UTC", class_="aside"), class_="period"),
    )


def _summary(data: ReportData) -> Html:
    return tag(
        "section",
        _card("Is my fleet meeting its objective?", summary.objective(data), "#objectives"),
        _card("Can I trust this page?", summary.trust(data), "#integrity"),
        tag("ul", *tiles(data), class_="tiles"),
        class_="summary",
        aria_label="Summary",
    )


def _card(question: str, verdict: Verdict, target: str) -> Html:
    mark = tag("span", summary.MARKS[verdict.word], class_="mark", aria_hidden="true")
    reasons = [tag("p", reason) for reason in verdict.reasons]
    return tag(
        "div",
        tag("h2", question),
        tag("p", mark, verdict.answer, class_="answer"),
        *reasons,
        tag("a", "Why", href=target, aria_label=f"Why: {question}"),
        class_=f"card {verdict.word}",
    )


def _contents(sections: list[Section]) -> Html:
    entries = [tag("li", tag("a", one.title, href=f"#{one.anchor}")) for one in sections]
    return tag("nav", tag("ol", *entries), aria_label="Contents")


def _section(one: Section) -> Html:
    heading = tag("h2", one.title, id=f"{one.anchor}-heading")
    return tag(
        "section",
        heading,
        tag("p", one.summary, class_="lead"),
        *one.body,
        id=one.anchor,
        aria_labelledby=f"{one.anchor}-heading",
    )


def _footer(data: ReportData) -> Html:
    made = f"Created {formats.instant(data.made_ms)} UTC" if data.made_ms is not None else "Created"
    by = f" by {data.made_by}" if data.made_by else " by routebook pipeline report"
    return tag("footer", tag("p", f"{made}{by}. This file needs no network and runs no scripts."))
