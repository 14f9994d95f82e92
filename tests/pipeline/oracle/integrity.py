"""12 `integrity`: whether the history is whole."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.history_rows import LOST_CODES, HistoryRows, Row, baselines, before, is_entry, within


def late_entries(rows: Sequence[Row]) -> list[Row]:
    """The entries that are older than the store's clock was at the end of an earlier batch.

    `rows` are all rows from the first one on, in order.
    """
    batch_ends: list[int] = []
    found = []
    for row in rows:
        if not is_entry(row):
            continue
        if row["code"] not in LOST_CODES and any(
            row["ms"] < other for other in batch_ends if other != row["ingested_ms"]
        ):
            found.append(row)
        if row["ingested_ms"] not in batch_ends[-1:]:
            batch_ends.append(row["ingested_ms"])
    return found


def by_era(history: HistoryRows, window: Window, complete_until_ms: int) -> list[dict[str, Any]]:
    rows = before(history, window.end_ms)
    late = [row for row in late_entries(rows) if within(row, window)]
    baseline_ends = {baseline.end["ord"] for baseline in baselines(rows)}
    eras: dict[int, list[Row]] = {}
    for row in rows:
        if within(row, window):
            eras.setdefault(row["era"], []).append(row)
    return [
        {
            **_era(era, of_era),
            "late": sum(row["era"] == era for row in late),
            "baselines": sum(is_entry(row) and row["ord"] in baseline_ends for row in of_era),
            "complete_until_ms": complete_until_ms,
        }
        for era, of_era in sorted(eras.items())
    ]


def _era(era: int, rows: Sequence[Row]) -> dict[str, Any]:
    entries = [row for row in rows if is_entry(row)]
    holes = [row for row in entries if row["code"] == Kind.HOLE]
    forks = [row for row in entries if row["code"] == Kind.FORK]
    own = [row for row in entries if row["code"] not in (Kind.HOLE, Kind.FORK)]
    versions = {row["version"] for row in own}
    missing = sum(row["to_version"] - row["from_version"] + 1 for row in holes)
    first = min([*versions, *(row["from_version"] for row in holes)], default=None)
    last = max([*versions, *(row["to_version"] for row in holes)], default=None)
    duplicates = len(entries) - len({row["version"] for row in entries})
    unreadable = Counter(row["cause"] for row in entries if row["code"] == Kind.UNREADABLE)
    complete = first is None or last is None or len(versions) + missing == last - first + 1
    return {
        "era": era,
        "first_version": first,
        "last_version": last,
        "entries": len(versions),
        "holes": [
            {"from_version": row["from_version"], "to_version": row["to_version"]}
            for row in sorted(holes, key=lambda row: int(row["from_version"]))
        ],
        "missing": missing,
        "forks": len(forks),
        "duplicates": duplicates,
        "unreadable": dict(unreadable),
        "ok": complete and not duplicates and not holes and not forks and not unreadable,
    }
