"""The images of docs/pipeline.md, drawn from the example day (`example.py`).

    python -m tests.pipeline.pictures docs/images

writes them.
"""

import sys
from importlib import resources
from pathlib import Path

from routebook_pipeline.history import DEFAULTS
from routebook_pipeline.report import charts
from routebook_pipeline.report.charts import Scale, picture, rule, text
from routebook_pipeline.report.data import PLANNED, UNKNOWN, UNPLANNED, UP, Band
from routebook_pipeline.report.formats import availability as shown
from routebook_pipeline.report.formats import duration
from routebook_pipeline.report.markup import Html, tag
from routebook_pipeline.report.sections.heartbeats import upper_edge_ms
from tests.pipeline.example import WINDOW, broken_scenario, day_scenario
from tests.pipeline.oracle import availability
from tests.pipeline.oracle.history_rows import Seat
from tests.pipeline.oracle.states import DOWN, Interval, all_intervals, counted, instants, state_at
from tests.pipeline.oracle.states import UNKNOWN as NOT_KNOWN
from tests.pipeline.oracle.states import UP as IS_UP

BEGIN = "/* Charts; "


def style() -> str:
    """The parts of the report's style sheet about colours and charts."""
    sheet = resources.files("routebook_pipeline.report").joinpath("style.css").read_text("utf-8")
    return (
        sheet[sheet.index(":root") : sheet.index("* { box-sizing")]
        + sheet[sheet.index(BEGIN) : sheet.index("@media print")]
    )


def standalone(drawn: Html, background: str = "var(--sheet)") -> str:
    """An SVG file of its own, in the reader's colour scheme."""
    opening, _, rest = drawn.partition(">")
    width, height = opening.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    opening = opening.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"')
    sheet = tag("rect", width=width, height=height, rx=6, style=f"fill: {background}")
    return f"{opening}>\n<style>\n{style()}</style>\n{sheet}\n{rest}\n"


def band(seat: Seat, interval: Interval) -> Band:
    state = {DOWN: UNPLANNED if interval.is_unplanned else PLANNED, NOT_KNOWN: UNKNOWN}.get(interval.state, UP)
    return Band(*seat, state, *counted(interval, WINDOW, DEFAULTS))


def day() -> str:
    history = day_scenario()
    ratios = {(row["broker"], row["broker_id"]): row["availability"] for row in availability.by_seat(history, WINDOW)}
    lanes = [
        charts.Lane(f"{seat[1]}/{seat[2]}", [band(seat, one) for one in of_seat], shown(ratios[seat[1:]]))
        for seat, of_seat in sorted(all_intervals(history.changes).items())
    ]
    return standalone(charts.bands("Three brokers, one day", lanes, WINDOW.start_ms, WINDOW.end_ms))


def readable() -> str:
    """When each group was writable and readable."""
    history = day_scenario()
    found = all_intervals(history.changes)
    lanes = []
    for group in availability.by_group(history, WINDOW):
        seats = {seat: of_seat for seat, of_seat in sorted(found.items()) if seat[1] == group["broker"]}
        master = next(seat for seat in seats if seat[2] == 0)
        writable = [band(master, one) for one in seats[master]]
        lanes.append(charts.Lane(f"{group['broker']} writable", writable, shown(group["availability"])))
        pieces = [
            Band(
                *master,
                UP if any(IS_UP in state_at(one, start, WINDOW, DEFAULTS) for one in seats.values()) else PLANNED,
                start,
                end,
            )
            for start, end in instants(list(seats.values()), WINDOW, DEFAULTS)
        ]
        lanes.append(charts.Lane(f"{group['broker']} readable", pieces, shown(group["readable"])))
    return standalone(
        charts.bands("When each group could be written to and read", lanes, WINDOW.start_ms, WINDOW.end_ms)
    )


def exposure() -> str:
    """The crash in the morning. It is not to scale, because two minutes are invisible beside half an hour."""
    moments = [
        (90, "08:58:00", "last heartbeat"),
        (400, "09:00:00", "expired"),
        (560, "09:00:30", ""),
        (870, "09:30:00", "back"),
    ]
    drawn = []
    for x, time, event in moments:
        drawn += [rule(x, 34, x, 148, "grid"), text(x, 16, time, "tick", "middle")]
        drawn += [text(x, 30, event, "tick", "middle")]
    spans = [
        (90, 400, 44, "unplanned", "routes contain a dead address: 2 min (detection)"),
        (400, 560, 78, "planned", "a client may still use it: 30 s (a poll)"),
        (400, 870, 112, "unplanned", "down: 30 min (time to repair)"),
    ]
    for start, end, y, css, label in spans:
        drawn.append(tag("rect", tag("title", label), x=start, y=y, width=end - start, height=10, class_=css))
        drawn.append(text(start + 6, y + 24, label))
    return standalone(picture("The crash of broker-a at 09:00", 156, drawn))


def gaps() -> str:
    history = day_scenario()
    counts: dict[int, int] = {}
    for row in history.pulses:
        if row["broker_id"] == 1:
            counts[row["bucket"]] = counts.get(row["bucket"], 0) + row["count"]
    buckets = range(60, 78)
    late = next(n for n, bucket in enumerate(buckets) if upper_edge_ms(bucket - 1) >= 45_000)
    drawn = charts.columns(
        "Heartbeat gaps of broker-a/1",
        [f"≤ {duration(upper_edge_ms(bucket))}" for bucket in buckets],
        [charts.Part("gaps", "up", [counts.get(bucket, 0) for bucket in buckets])],
        marks=[(late, "late from here")],
        logarithmic=True,
    )
    return standalone(drawn)


def hole() -> str:
    """Consecutive versions, of which three are missing."""
    rows = [row for row in broken_scenario().changes if row["row"] == 0 and row["ms"] >= WINDOW.start_ms]
    css = {90: "unknown", 99: "unplanned"}
    kinds = dict.fromkeys(range(42, 48), "up")
    for row in rows:
        last = row["to_version"] or row["version"]
        kinds |= {
            version: css.get(row["code"], "up") for version in range(row["from_version"] or row["version"], last + 1)
        }
    across = Scale(42, 48, 60, 900)
    drawn = [tag("defs", *_stripes())]
    for version, kind in kinds.items():
        drawn.append(tag("rect", x=across(version), y=14, width=126, height=26, class_=kind))
        drawn.append(text(across(version) + 63, 58, str(version), "tick", "middle"))
    for at, label in ((42, "read"), (44, "missing: a hole of 3"), (46, "unreadable"), (47, "read")):
        drawn.append(text(across(at) + 63, 76, label, "name", "middle"))
    return standalone(picture("Versions 42 to 47: three are missing, one is unreadable", 88, drawn))


def _stripes() -> list[Html]:
    path = tag("path", d="M0 6L6 0", class_="stripe")
    return [tag("pattern", path, id="stripes", width=6, height=6, patternUnits="userSpaceOnUse")]


ALL = {"day": day, "readable": readable, "exposure": exposure, "gaps": gaps, "hole": hole}


def write_all(folder: Path) -> None:
    for name, draw in ALL.items():
        (folder / f"pipeline-{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
