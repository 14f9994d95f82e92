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


def integrity_section(findings: ReportData) -> Section:
    rows = findings.integrity
    if rows:
        sound = all(row["ok"] for row in rows)
        gist = "Every change is here, once." if sound else "Something is missing, or cannot be read: see below."
        tables = table(
            "Changes of this time, by history",
            [
                Column("History", lambda row: f"{row['era']}", is_figure=False, is_row_name=True),
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
                figure("Twice", "duplicates"),
                figure("Baselines", "baselines"),
            ],
            rows,
            more=command(findings, "integrity"),
        )
    else:
        gist = "No change fell into this time."
        tables = nothing("No change fell into this time. States are as the changes before it left them.")
    extent = tag(
        "p",
        f"Asked for {formats.instant(findings.window.start_ms)} to "
        f"{formats.instant(findings.asked_until_ms or findings.window.end_ms)}; the history is complete until "
        f"{formats.instant(findings.complete_until_ms)}.",
        " This answer ends where the history does." if findings.is_partial else None,
    )
    notes = tag("ul", *(tag("li", note) for note in findings.notes), class_="notes") if findings.notes else Html("")
    return Section("integrity", "Integrity and completeness", gist, (extent, notes, tables))


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
"""From worst to least; an unknown word stands between."""

_DURATIONS: Final = {"headless", "slow-detection", "read-only"}
_SHARES: Final = {"mass-loss", "late-heartbeats"}


def anomaly_section(findings: ReportData) -> Section:
    title = "Anomalies"
    rows = sorted(
        findings.anomalies, key=lambda row: (rank(row["severity"]), row["from_ms"] or 0, row["subject"] or "")
    )
    if not rows:
        return Section("anomalies", title, "No rule found anything.", (nothing("No rule found anything."),))
    total = findings.total("anomalies")
    rules = Counter(row["rule"] for row in rows)
    gist = f"{many(total, 'finding')}: " + ", ".join(f"{number} {rule}" for rule, number in rules.most_common(6)) + "."
    tabled = table(
        "Findings, the most severe first",
        [
            words("Severity", _badge),
            words("Rule", lambda row: tag("code", row["rule"])),
            named("What", "subject"),
            figure("From", "from_ms", formats.instant),
            Column("For", _lasted),
            Column("Value", lambda row: shown(row, "value")),
            Column("Threshold", lambda row: shown(row, "threshold")),
            words("Proved by versions", _versions),
        ],
        rows,
        total=total,
        more=command(findings, "anomalies"),
        limit=SHOWN,
    )
    advice = tag(
        "p",
        "What the table of routes was at such a version: ",
        tag("code", "routebook pipeline route-at TOPIC --version N"),
        ". What the entry says: ",
        tag("code", "GET /v1/changes?since=N-1&limit=1"),
        ", while it is in the store.",
    )
    return Section("anomalies", title, gist, (tabled, advice))


def _lasted(row: Row) -> str:
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
    """In the rule's own unit."""
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
    head = ", ".join(str(one) for one in versions[:VERSIONS_SHOWN])
    rest = len(versions) - VERSIONS_SHOWN
    return Html(name(head) + (f" and {rest:,} more" if rest > 0 else ""))
