"""How much do the topics change?"""

from routebook_pipeline.report import charts, formats
from routebook_pipeline.report.findings import Findings
from routebook_pipeline.report.sections.section import Section, command, many
from routebook_pipeline.report.tables import chart, figure, named, nothing, table

DRAWN = 12


def section(findings: Findings) -> Section:
    title = "Churn of topics"
    rows = sorted(
        findings.churn, key=lambda row: (-(row["created"] + row["removed"] + 2 * row["passing"]), row["cluster"])
    )
    if not rows:
        return Section("churn", title, "No topic was there.", (nothing("No topic was there in this time."),))
    created, removed = (sum(row[key] for row in rows) for key in ("created", "removed"))
    gist = f"{many(created, 'topic')} created, {formats.count(removed)} removed."
    tabled = table(
        "Topics, by cluster",
        [
            named("Cluster", "cluster"),
            figure("Before", "topics_before"),
            figure("After", "topics_after"),
            figure("Created", "created"),
            figure("Removed", "removed"),
            figure("Came and went", "passing"),
            figure("Resized", "resized"),
            figure("Rate", "rate", formats.share),
        ],
        rows,
        total=findings.total("churn"),
        more=command(findings, "churn"),
    )
    drawn = [row for row in rows if row["created"] or row["removed"] or row["passing"]][:DRAWN]
    if not drawn:
        return Section("churn", title, gist, (tabled,))
    picture = charts.bars(
        "Topics removed to the left, created to the right",
        [row["cluster"] for row in drawn],
        [
            charts.Part("created", "s0", [row["created"] for row in drawn]),
            charts.Part("came and went", "s2", [row["passing"] for row in drawn]),
            charts.Part("removed", "s1", [-row["removed"] for row in drawn]),
        ],
    )
    key = charts.legend(("s1", "removed"), ("s0", "created"), ("s2", "came and went"))
    return Section("churn", title, gist, (chart("Topics removed and created", picture, key, tabled, is_open=True),))
