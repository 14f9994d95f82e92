"""What does not look right, with the entries that prove it."""

from collections import Counter
from typing import Final

from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import Html, escape, name, tag
from routebook_pipeline.report.sections.section import Section, command, many
from routebook_pipeline.report.tables import Column, figure, named, nothing, table, words

SHOWN: Final = 50
VERSIONS_SHOWN: Final = 4
SEVERITIES: Final = ("critical", "error", "high", "warning", "medium", "low", "info")
"""From worst to least; an unknown word stands between."""

_DURATIONS: Final = {"headless", "slow-detection", "read-only"}
_SHARES: Final = {"mass-loss", "late-heartbeats"}


def section(findings: Findings) -> Section:
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
