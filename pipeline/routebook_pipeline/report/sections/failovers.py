"""When did a group get another master, and how long was it without one?"""

from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import name
from routebook_pipeline.report.sections.section import Section, command, many
from routebook_pipeline.report.tables import figure, named, nothing, table, words


def section(findings: Findings) -> Section:
    title = "Failovers"
    groups = sorted(
        findings.failovers_by_group,
        key=lambda row: (-(row["headless_ms"] or 0), -row["failovers"], row["cluster"], row["broker"]),
    )
    if not groups and not findings.failovers:
        said = "No group got another master, and none was without one."
        return Section("failovers", title, said, (nothing(said),))
    number = sum(row["failovers"] for row in groups)
    planned = sum(row["planned"] for row in groups)
    headless = sum(row["headless_ms"] or 0 for row in groups)
    gist = f"{many(number, 'failover')}, {formats.count(planned)} without a gap; {formats.duration(headless)} headless."
    by_group = table(
        "Groups, the longest headless first",
        [
            named("Group", "cluster", "broker"),
            figure("Failovers", "failovers"),
            figure("Without a gap", "planned"),
            figure("Gaps in all", "gap_ms", formats.duration),
            figure("Longest", "longest_gap_ms", formats.duration),
            figure("Headless", "headless_ms", formats.duration),
        ],
        groups,
        total=findings.total("failovers_by_group"),
        more=command(findings, "failovers", "group"),
        limit=10,
    )
    each = table(
        "Failovers, the longest gap first",
        [
            named("Group", "cluster", "broker"),
            figure("At", "ms", formats.instant),
            figure("Version", "version", str),
            words("From", lambda row: name(row["from_address"])),
            words("To", lambda row: name(row["to_address"])),
            words("Gap", _gap),
        ],
        sorted(findings.failovers, key=lambda row: (-(row["gap_ms"] or 0), row["ms"], row["version"])),
        total=findings.total("failovers"),
        more=command(findings, "failovers"),
        limit=10,
    )
    return Section("failovers", title, gist, (by_group, each) if findings.failovers else (by_group,))


def _gap(row: Row) -> str:
    return "none" if row["planned"] else formats.duration(row["gap_ms"])
