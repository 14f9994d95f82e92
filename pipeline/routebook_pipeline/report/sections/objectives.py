"""Does each cluster meet its objective, and how much of the error budget is gone?"""

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import Html, escape, name, tag
from routebook_pipeline.report.sections.section import Section, command, many, ranked
from routebook_pipeline.report.tables import chart, figure, named, nothing, table, words

DRAWN = 12
MOST_TIMES = 4.0
"""A bar ends at so many budgets: one lost cluster must not flatten the picture of the others."""


def section(findings: Findings) -> Section:
    rows = sorted(findings.availability_by_cluster, key=lambda row: (ranked(row["availability"]), row["cluster"]))
    wanted = formats.objective(findings.thresholds.objective)
    if not rows:
        return Section(
            "objectives", "Objectives", f"Objective {wanted}.", (nothing("No cluster was heard of before the end."),)
        )
    judged = [row for row in rows if row["met"] is not None]
    met = sum(1 for row in judged if row["met"])
    gist = f"{met} of {many(len(judged), 'cluster')} {'meets' if met == 1 else 'meet'} {wanted} of time writable."
    return Section("objectives", "Objectives", gist, (_clusters(findings, rows, judged), _groups(findings)))


def _clusters(findings: Findings, rows: list[Row], judged: list[Row]) -> Html:
    tabled = table(
        "Time writable, by cluster, the lowest first",
        [
            named("Cluster", "cluster"),
            words("Met", _met),
            figure("Availability", "availability", formats.availability),
            figure("With planned", "availability_all", formats.availability),
            figure("Groups", "groups"),
            figure("Budget", "budget_ms", formats.duration),
            figure("Spent", "spent_ms", formats.duration),
            figure("Planned", "planned_ms", formats.duration),
            figure("Unknown", "unknown_ms", formats.duration),
            words("Worst group", _worst),
        ],
        rows,
        total=findings.total("availability_by_cluster"),
        more=command(findings, "availability", "cluster"),
    )
    drawn = [row for row in judged if row["budget_ms"]][:DRAWN]
    if not drawn:
        return tabled
    spent = [row["spent_ms"] / row["budget_ms"] for row in drawn]
    picture = charts.bars(
        "Share of the error budget that is spent, by cluster",
        [row["cluster"] for row in drawn],
        [
            charts.Part("within the budget", "up", [min(1.0, one) for one in spent]),
            charts.Part("beyond it", "unplanned", [min(MOST_TIMES, max(0.0, one - 1)) for one in spent]),
        ],
        formats.share,
        limit=1.0,
    )
    key = charts.legend(
        ("up", "spent, within the budget"),
        ("unplanned", "beyond it, five budgets at most drawn"),
        ("mark", "the whole budget"),
    )
    return chart("Error budget spent", picture, key, tabled, is_open=True)


def _met(row: Row) -> Html:
    if row["met"] is None:
        return tag("span", formats.NOTHING)
    return tag("strong", "yes" if row["met"] else "no", class_="ok" if row["met"] else "bad")


def _worst(row: Row) -> Html:
    said = formats.availability(row["worst_availability"]).replace(" ", "\N{NO-BREAK SPACE}")
    return Html(name(row["worst_group"]) + escape(f", {said}" if row["worst_group"] is not None else ""))


def _groups(findings: Findings) -> Html:
    rows = sorted(
        findings.availability_by_group,
        key=lambda row: (ranked(row["availability"]), ranked(row["readable"]), row["cluster"], row["broker"]),
    )
    if not rows:
        return nothing("No broker group was heard of before the end.")
    return table(
        "Broker groups, the lowest first",
        [
            named("Group", "cluster", "broker"),
            figure("Writable", "availability", formats.availability),
            figure("Unplanned", "unplanned_ms", formats.duration),
            figure("Planned", "planned_ms", formats.duration),
            figure("Unknown", "unknown_ms", formats.duration),
            figure("Readable", "readable", formats.availability),
            figure("Unreadable", "unreadable_ms", formats.duration),
        ],
        rows,
        total=findings.total("availability_by_group"),
        more=command(findings, "availability", "group"),
        limit=10,
    )
