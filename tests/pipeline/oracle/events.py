"""13 `events`: every entry and queue item of the window, with what was last stated about the same seat or queue."""

from typing import Any

from routebook_pipeline.history import DEFAULTS, Thresholds, Window
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.history_rows import (
    UP_CODES,
    HistoryRows,
    Row,
    Seat,
    before,
    is_entry,
    is_item,
    seat_of,
    within,
)
from tests.pipeline.oracle.routes import played


def events(
    history: HistoryRows,
    window: Window,
    thresholds: Thresholds = DEFAULTS,
    *,
    cluster: str | None = None,
    broker: str | None = None,
    topic: str | None = None,
) -> list[dict[str, Any]]:
    """An entry that names no broker concerns all of them. A baseline is shown as far as it states something new."""
    stated: dict[Seat, str | None] = {}
    found = []
    head: Row | None = None
    for row, table in played(before(history, window.end_ms)):
        head = row if is_entry(row) else head
        seat, statement = _seat(row), _statement(row)
        item = table.get(row["broker"], {}).get(row["topic"]) if is_item(row) else None
        earlier = _statement({**item, "perm": item["perm_said"]}) if item else stated.get(seat) if seat else None
        if seat:
            stated[seat] = statement
        is_wanted = row["broker"] is None or (
            cluster in (None, row["cluster"]) and broker in (None, row["broker"]) and topic in (None, row["topic"])
        )
        is_baseline = row["code"] in (Kind.BASELINE_SEAT, Kind.BASELINE_QUEUES)
        is_new = not is_baseline or ((seat is not None or is_item(row)) and earlier != statement)
        if not (within(row, window) and is_wanted and is_new):
            continue
        names = ("era", "version", "row", "ms", "kind", "cluster", "broker", "broker_id", "topic")
        of_entry = head if head is not None and head["ord"] == row["ord"] else row
        found.append(
            {
                **{name: row[name] for name in names},
                "before": earlier,
                "after": statement,
                **{name: of_entry[name] for name in ("cause", "actor", "source")},
            }
        )
    return found


def _seat(row: Row) -> Seat | None:
    """The seat that the row states something about."""
    states = is_entry(row) and (row["code"] in UP_CODES or row["code"] == Kind.BROKER_REMOVED)
    return seat_of(row) if states and row["broker_id"] is not None else None


def _statement(row: Row) -> str | None:
    if is_item(row):
        if row["removed"]:
            return "removed"
        return f"{row['read_queues']} read, {row['write_queues']} write, {_permission(row['perm'])}"
    if _seat(row):
        if row["code"] in UP_CODES:
            return str(row["addr"])
        return "down, group removed" if row["group_removed"] else "down"
    if row["code"] == Kind.WRITE_PERMISSION and row["broker"] is not None:
        return f"all topics {_permission(row['perm'])}" if row["rule"] == "set" else "all topics not writable"
    if row["code"] in (Kind.HOLE, Kind.FORK):
        return f"versions {row['from_version']} to {row['to_version']}"
    if row["code"] == Kind.EXPIRY_PAUSED:
        return f"for {row['to_ms'] - row['from_ms']} ms"
    return None


def _permission(perm: int) -> str:
    return ("r" if perm & 4 else "-") + ("w" if perm & 2 else "-")
