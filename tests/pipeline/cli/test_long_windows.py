"""A report over more than a year, as an operator makes it."""

from pathlib import Path
from typing import Final

import pytest

from routebook_pipeline.history import DAY_MS, HOUR_MS
from routebook_pipeline.source.stream import EntryId
from tests.pipeline.cli.commands import Entry, Pipeline, seat_entry
from tests.pipeline.cli.shell import Shell
from tests.pipeline.report.strict_html import charts, read
from tests.pipeline.source.streams import Stream

LONG_DAYS: Final = 400
AWAY_DAYS: Final = 10
"""On every tenth day except the first, the broker is away for an hour."""


def many_days(midnight_ms: int) -> list[Entry]:
    """Each day the broker's only topic has another number of queues."""
    payloads: list[tuple[int, bytes]] = []
    for day in range(LONG_DAYS):
        at_ms = midnight_ms - (LONG_DAYS - day) * DAY_MS
        queues = [{"t": "orders", "r": day % 16 + 1, "w": day % 16 + 1, "p": 6, "f": 0}]
        if day % AWAY_DAYS == 0:
            if day:
                removed = seat_entry("broker-removed", cause="expired")
                payloads.append((at_ms, removed))
            payloads.append((at_ms + HOUR_MS, seat_entry("broker-registered", first=day == 0, queues=queues)))
        else:
            payloads.append((at_ms, seat_entry("broker-changed", queues=queues)))
    payloads.append((midnight_ms, seat_entry("broker-changed")))
    return [(EntryId(at_ms, version), payload) for version, (at_ms, payload) in enumerate(payloads, start=1)]


@pytest.mark.slow
def test_a_report_of_400_days_is_written(
    stream: Stream, environment: dict[str, str], midnight_ms: int, tmp_path: Path
) -> None:
    stream.append(many_days(midnight_ms))
    page = tmp_path / "report.html"
    with Shell(environment) as shell:
        pipeline = Pipeline(shell)
        assert pipeline("ingest", "--once").code == 0
        window = ("--from", f"-{LONG_DAYS - 1}d")
        rows = pipeline.json("run", "availability", "--by", "seat", *window)["rows"]
        absences = (LONG_DAYS - 1) // AWAY_DAYS
        assert [(row["broker"], row["unplanned_ms"]) for row in rows] == [("b", absences * HOUR_MS)]
        result = pipeline("report", *window, "--out", str(page))
        assert result.code == 0, result
    text = page.read_text()
    read(text)
    assert charts(text)
