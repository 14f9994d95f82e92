"""Is the history whole? Everything else rests on it, so it comes first."""

from routebook_pipeline.report import formats
from routebook_pipeline.report.findings import Findings, Row
from routebook_pipeline.report.markup import Html, escape, join, name, tag
from routebook_pipeline.report.sections.section import Section, command, many
from routebook_pipeline.report.tables import Column, figure, nothing, table, words

HOLES_SHOWN = 5


def section(findings: Findings) -> Section:
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
    reach = tag(
        "p",
        f"Asked for {formats.instant(findings.window.start_ms)} to "
        f"{formats.instant(findings.asked_until_ms or findings.window.end_ms)}; the history is complete until "
        f"{formats.instant(findings.complete_until_ms)}.",
        " This answer ends where the history does." if findings.is_partial else None,
    )
    notes = tag("ul", *(tag("li", note) for note in findings.notes), class_="notes") if findings.notes else Html("")
    return Section("integrity", "Integrity and completeness", gist, (reach, notes, tables))


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
