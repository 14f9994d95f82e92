"""The sections "Integrity and completeness" and "Anomalies"."""

from collections import Counter
from typing import Final

from routebook_pipeline.report import formats
from routebook_pipeline.report.data import ReportData, Row
from routebook_pipeline.report.markup import (
    Column,
    Html,
    Section,
    command,
    escape,
    figure,
    join,
    many,
    name,
    named,
    nothing,
    table,
    tag,
    words,
)

HOLES_SHOWN = 5


def integrity_section(data: ReportData) -> Section:
    rows = data.integrity
    if rows:
        is_whole = all(row["ok"] for row in rows)
        summary = "Every change is present, once." if is_whole else "Changes are missing or unreadable, see below."
        tables = table(
            "Changes of this period, by era",
            [
                Column("Era", lambda row: f"{row['era']}", is_figure=False, is_row_name=True),
                words(
                    "Whole",
                    lambda row: tag("strong", "yes" if row["ok"] else "no", class_="ok" if row["ok"] else "bad"),
                ),
                figure("First version", "first_version"),
                figure("Last version", "last_version"),
                figure("Entries", "entries"),
                figure("Missing", "missing"),
                words("Holes", _holes),
                figure("Forks", "forks"),
                words("Unreadable", _unreadable),
                figure("Late", "late"),
                figure("Duplicates", "duplicates"),
                figure("Baselines", "baselines"),
            ],
            rows,
            more=command(data, "integrity"),
        )
    else:
        summary = "There was no change in this period."
        tables = nothing("There was no change in this period. The states are those that earlier changes left.")
    requested = tag(
        "p",
        f"Requested: {formats.instant(data.window.start_ms)} to "
        f"{formats.instant(data.asked_until_ms or data.window.end_ms)}; the history is complete until "
        f"{formats.instant(data.complete_until_ms)}.",
        " The report ends where the history ends." if data.is_partial else None,
    )
    notes = tag("ul", *(tag("li", note) for note in data.notes), class_="notes") if data.notes else Html("")
    return Section("integrity", "Integrity and completeness", summary, (requested, notes, tables))


def _holes(row: Row) -> Html:
    holes = row["holes"] or []
    if not holes:
        return escape(formats.NOTHING)
    shown = [f"{hole['from_version']} to {hole['to_version']}" for hole in holes[:HOLES_SHOWN]]
    rest = f" and {many(len(holes) - HOLES_SHOWN, 'more', 'more')}" if len(holes) > HOLES_SHOWN else ""
    return escape("; ".join(shown) + rest)


def _unreadable(row: Row) -> Html:
    reasons = sorted((row["unreadable"] or {}).items())
    if not reasons:
        return escape(formats.NOTHING)
    return join([Html(f"{name(reason)} {formats.count(number)}") for reason, number in reasons[:HOLES_SHOWN]], "; ")


SHOWN: Final = 50
VERSIONS_SHOWN: Final = 4
SEVERITIES: Final = ("critical", "error", "high", "warning", "medium", "low", "info")
"""In falling order. An unknown severity is treated as medium."""

_DURATIONS: Final = {"headless", "slow-detection", "read-only"}
_SHARES: Final = {"mass-loss", "late-heartbeats"}


def anomaly_section(data: ReportData) -> Section:
    title = "Anomalies"
    rows = sorted(data.anomalies, key=lambda row: (rank(row["severity"]), row["from_ms"] or 0, row["subject"] or ""))
    if not rows:
        return Section("anomalies", title, "No anomaly was found.", (nothing("No anomaly was found."),))
    total = data.total("anomalies")
    rules = Counter(row["rule"] for row in rows)
    summary = (
        f"{many(total, 'finding')}: " + ", ".join(f"{number} {rule}" for rule, number in rules.most_common(6)) + "."
    )
    tabled = table(
        "Findings, the most severe first",
        [
            words("Severity", _badge),
            words("Rule", lambda row: tag("code", row["rule"])),
            named("Subject", "subject"),
            figure("From", "from_ms", formats.instant),
            Column("Duration", _duration),
            Column("Value", lambda row: shown(row, "value")),
            Column("Threshold", lambda row: shown(row, "threshold")),
            words("Versions", _versions),
        ],
        rows,
        total=total,
        more=command(data, "anomalies"),
        limit=SHOWN,
    )
    advice = tag(
        "p",
        "A topic's route at version N: ",
        tag("code", "routebook pipeline route-at TOPIC --version N"),
        ". The change itself, as long as it is in the store: ",
        tag("code", "GET /v1/changes?since=N-1&limit=1"),
        ".",
    )
    return Section("anomalies", title, summary, (tabled, advice))


def _duration(row: Row) -> str:
    return (
        formats.NOTHING
        if row["from_ms"] is None or not row["to_ms"]
        else formats.duration(row["to_ms"] - row["from_ms"])
    )


def rank(severity: str | None) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else SEVERITIES.index("medium")


def _badge(row: Row) -> Html:
    level = "bad" if rank(row["severity"]) < SEVERITIES.index("warning") else "care"
    return tag(
        "span", row["severity"] or formats.NOTHING, class_=f"badge {'calm' if row['severity'] == 'info' else level}"
    )


def shown(row: Row, key: str) -> str:
    """The value or threshold, in the rule's unit."""
    value = row[key]
    if value is None:
        return formats.NOTHING
    if row["rule"] in _DURATIONS:
        return formats.duration(value)
    return formats.share(value) if row["rule"] in _SHARES else formats.decimal(value).removesuffix(".00")


def _versions(row: Row) -> Html:
    versions = row["versions"] or ()
    if not versions:
        return escape(formats.NOTHING)
    head = ", ".join(str(version) for version in versions[:VERSIONS_SHOWN])
    rest = len(versions) - VERSIONS_SHOWN
    return Html(name(head) + (f" and {rest:,} more" if rest > 0 else ""))
