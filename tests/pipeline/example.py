"""The example of docs/pipeline.md: one day of a small fleet.

    python -m tests.pipeline.example

prints the tables of the document.
"""

from collections.abc import Callable, Sequence
from typing import Any

from routebook_pipeline.history import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Instant, Window
from routebook_pipeline.report import formats
from tests.pipeline.oracle import (
    availability,
    capacity,
    churn,
    events,
    exposure,
    failovers,
    failures,
    heartbeat_gaps,
    integrity,
    routes,
)
from tests.pipeline.oracle.history_rows import HistoryRows
from tests.pipeline.scenario import Scenario, item, removed_item

MIDNIGHT_MS = 1_793_577_600_000  # 2026-11-02T00:00Z
WINDOW = Window(MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS)
A, B = "shop/broker-a", "shop/broker-b"
A0, A1, B0 = f"{A}/0", f"{A}/1", f"{B}/0"
FIRST, SECOND, SLAVE, OTHER = (f"127.0.0.{n}:10911" for n in (11, 12, 13, 21))
Rows = Sequence[dict[str, Any]]


def at(hours: int, minutes: int = 0, seconds: int = 0) -> int:
    return MIDNIGHT_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS


def day_scenario() -> Scenario:
    scenario = Scenario(ns="default", version=40)
    scenario.registered(item("orders"), item("carts", 4, 4), seat=A0, addr=FIRST, at=at(-12))
    scenario.registered(seat=A1, addr=SLAVE, at=at(-12))
    scenario.registered(item("orders"), seat=B0, addr=OTHER, at=at(-12))
    # Maintenance: the only seat of its group leaves, with all queue data of the group, and comes back.
    scenario.removed("unregistered", seat=B0, addr=OTHER, at=at(3), group_removed=True)
    scenario.registered(item("orders"), seat=B0, addr=OTHER, at=at(3, 20))
    # A crash, detected because heartbeats stop.
    scenario.removed("expired", seat=A0, addr=FIRST, at=at(9), last_heartbeat_ms=at(8, 58))
    scenario.registered(seat=A0, addr=FIRST, at=at(9, 30))
    # A slave that flaps.
    for minute in (0, 4, 9):
        scenario.removed("connection-lost", seat=A1, addr=SLAVE, at=at(14, minute), lost_ms=at(14, minute) - 3000)
        scenario.registered(seat=A1, addr=SLAVE, at=at(14, minute, 20))
    scenario.queues(item("refunds", 4, 4), group=A, at=at(16))
    scenario.queues(item("orders", 16, 16), group=B, at=at(16, 30))
    scenario.queues(item("trial", 1, 1), group=A, at=at(17))
    scenario.queues(removed_item("trial"), group=A, at=at(17, 10), cause="delete-topic")
    scenario.queues(removed_item("carts"), group=A, at=at(17, 30), cause="delete-topic")
    # A failover: another address takes the master's seat.
    scenario.removed("connection-lost", seat=A0, addr=FIRST, at=at(18), lost_ms=at(17, 59, 57))
    scenario.registered(seat=A0, addr=SECOND, at=at(18, 0, 40))
    for hour in range(24):
        scenario.heartbeat_gaps({65: 12, 66: 106, 68: 2}, A0, to_ms=at(hour, 59), max_ms=35_900)
        scenario.heartbeat_gaps({66: 118, 71: 1, 72: 1}, A1, to_ms=at(hour, 59), max_ms=50_400)
        scenario.heartbeat_gaps({66: 120}, B0, to_ms=at(hour, 59), max_ms=30_300)
    return scenario


def broken_scenario() -> Scenario:
    """A history with three lost changes and an unreadable one."""
    scenario = Scenario(ns="default", version=40)
    scenario.registered(item("orders"), seat=A0, addr=FIRST, at=at(-12))
    scenario.queues(item("carts"), group=A, at=at(1))
    scenario.hole(3, at=at(2))
    scenario.unreadable("utf8", at=at(3))
    scenario.queues(item("refunds"), group=A, at=at(4))
    return scenario


Show = Callable[[Any], str]


def table(rows: Rows, **columns: tuple[str, Show]) -> str:
    """A Markdown table: column -> heading and format."""
    heads = [title for title, _ in columns.values()]
    lines = [heads, ["---:" if show is not str else "---" for _, show in columns.values()]]
    lines += [
        [formats.NOTHING if row[key] is None else show(row[key]) for key, (_, show) in columns.items()] for row in rows
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def seats(rows: Rows) -> Rows:
    return [{**row, "name": "/".join(str(row[key]) for key in ("broker", "broker_id"))} for row in rows]


def tables() -> dict[str, str]:
    history = day_scenario()
    name: dict[str, tuple[str, Show]] = {"name": ("broker", str)}
    group: dict[str, tuple[str, Show]] = {"broker": ("group", str)}
    times: dict[str, tuple[str, Show]] = {
        "up_ms": ("up", formats.duration),
        "unplanned_ms": ("unplanned", formats.duration),
        "planned_ms": ("planned", formats.duration),
        "availability": ("availability", formats.availability),
        "availability_all": ("with planned", formats.availability),
    }
    found = [
        {**row, "addresses": ", ".join(f"{key}: `{value}`" for key, value in row["addresses"].items())}
        for row in routes.routes_at(history, Instant(ms=at(9, 15)), "orders")
    ]
    changed = [
        {**row, "entries": ", ".join(f"{entry['version']} {entry['kind']}" for entry in row["entries"])}
        for row in routes.route_diff(history, Instant(ms=at(16) - 1), Instant(ms=at(17, 45) - 1))
    ]
    evening = [
        {
            **row,
            "time": formats.instant(row["ms"])[11:19],
            "subject": f"{row['topic']}" if row["topic"] else f"{row['broker']}/{row['broker_id']}",
        }
        for row in events.events(history, Window(at(17), at(18, 1)), broker="broker-a")
        if row["row"] or row["broker_id"] is not None
    ]
    gap_figures: dict[str, tuple[str, Show]] = {
        "number": ("gaps", formats.count),
        "p50_ms": ("p50", formats.duration),
        "p99_ms": ("p99", formats.duration),
        "max_ms": ("longest", formats.duration),
        "late": ("late", formats.count),
        "late_share": ("share", formats.share),
    }
    causes = [
        {**row, "causes": ", ".join(f"{cause} {number}" for cause, number in sorted(row["causes"].items())) or "none"}
        for row in seats(failures.by_seat(history, WINDOW))
    ]
    episodes = [{**row, "episodes": len(row["episodes"])} for row in seats(failures.flaps_by_seat(history, WINDOW))]
    instants = [WINDOW.start_ms, WINDOW.end_ms]
    intact = [{**row, "holes": _holes(row), "unreadable": _reasons(row)} for row in _integrity(history)]
    broken = [{**row, "holes": _holes(row), "unreadable": _reasons(row)} for row in _integrity(broken_scenario())]
    integrity_figures: dict[str, tuple[str, Show]] = {
        "first_version": ("first", str),
        "last_version": ("last", str),
        "entries": ("entries", formats.count),
        "holes": ("holes", str),
        "unreadable": ("unreadable", str),
        "ok": ("ok", lambda ok: "yes" if ok else "no"),
    }
    return {
        "route": table(
            found,
            **group,
            read_queues=("read", formats.count),
            write_queues=("write", formats.count),
            addresses=("addresses", str),
        ),
        "events": table(
            evening,
            time=("at", str),
            kind=("event", str),
            subject=("subject", str),
            before=("before", str),
            after=("after", str),
            cause=("cause", str),
        ),
        "route-diff": table(
            changed,
            topic=("topic", str),
            **group,
            difference=("difference", str),
            write_queues_before=("write before", formats.count),
            write_queues_after=("after", formats.count),
            entries=("entries", str),
        ),
        "availability seat": table(seats(availability.by_seat(history, WINDOW)), **name, **times),
        "availability group": table(
            availability.by_group(history, WINDOW),
            **group,
            availability=("writable", formats.availability),
            readable=("readable", formats.availability),
            unreadable_ms=("unreadable", formats.duration),
        ),
        "availability cluster": table(
            availability.by_cluster(history, WINDOW),
            cluster=("cluster", str),
            availability=("availability", formats.availability),
            budget_ms=("budget", formats.duration),
            spent_ms=("spent", formats.duration),
            met=("met", lambda met: "yes" if met else "no"),
            worst_group=("worst group", str),
        ),
        "failures": table(
            causes,
            **name,
            unplanned=("unplanned", formats.count),
            planned=("planned", formats.count),
            causes=("causes", str),
            mtbf_ms=("MTBF", formats.duration),
            mttr_ms=("MTTR", formats.duration),
        ),
        "flaps": table(episodes, **name, flaps=("flaps", formats.count), episodes=("episodes", formats.count)),
        "heartbeat-gaps": table(seats(heartbeat_gaps.by_seat(history, WINDOW)), **name, **gap_figures),
        "churn": table(
            churn.by_cluster(history, WINDOW),
            cluster=("cluster", str),
            topics_before=("before", formats.count),
            topics_after=("after", formats.count),
            created=("created", formats.count),
            removed=("removed", formats.count),
            passing=("short-lived", formats.count),
            resized=("resized", formats.count),
            rate=("rate", formats.decimal),
        ),
        "capacity": table(
            capacity.by_cluster(history, instants),
            at_ms=("at", lambda ms: formats.instant(ms)[:16]),
            write_capacity=("writable", formats.count),
            read_capacity=("readable", formats.count),
            mean=("mean per group", formats.decimal),
            peak=("peak / mean", formats.decimal),
            cv=("variation", formats.decimal),
            gini=("Gini", formats.decimal),
            top_topic=("largest topic", str),
            top_share=("share", formats.share),
        ),
        "exposure": table(
            exposure.by_cluster(history, WINDOW),
            day=("day", str),
            number=("failures", formats.count),
            detection_ms=("total", formats.duration),
            p50_ms=("p50", formats.duration),
            max_ms=("longest", formats.duration),
            client_mean_ms=("client, mean", formats.duration),
            client_worst_ms=("client, worst case", formats.duration),
            queue_seconds=("queue seconds", formats.count),
        ),
        "failovers": table(
            failovers.by_group(history, WINDOW),
            **group,
            failovers=("failovers", formats.count),
            gap_ms=("total gap", formats.duration),
            headless_ms=("headless", formats.duration),
        ),
        "integrity": table(intact, **integrity_figures),
        "integrity broken": table(broken, **integrity_figures),
    }


def _integrity(history: HistoryRows) -> Rows:
    return integrity.by_era(history, WINDOW, WINDOW.end_ms)


def _holes(row: dict[str, Any]) -> str:
    return ", ".join(f"{hole['from_version']} to {hole['to_version']}" for hole in row["holes"]) or "none"


def _reasons(row: dict[str, Any]) -> str:
    return ", ".join(f"{reason} {number}" for reason, number in row["unreadable"].items()) or "none"


if __name__ == "__main__":
    for title, text in tables().items():
        print(f"{title}\n\n{text}\n")
