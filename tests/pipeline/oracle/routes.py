"""1 `route` and 2 `route-diff`: the routes at an instant, and how they changed between two instants."""

from collections.abc import Iterator, Sequence
from typing import Any

from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.history_rows import (
    LOST_CODES,
    UP_CODES,
    HistoryRows,
    Row,
    Seat,
    baselines,
    is_entry,
    is_item,
    until,
)
from tests.pipeline.oracle.states import UP, Evidence, evidence, last_state

Queue = tuple[str, str]
"""Topic and broker name."""

WRITE, READ = 2, 4
_FLAGGED = UP_CODES | {Kind.GROUP_CHANGED}


Table = dict[str, dict[str, dict[str, Any]]]
"""Broker name -> topic -> queue item. As in the service, the cluster is not part of the key.

`perm` is the present permission, `perm_said` the one in the item.
"""


def played(rows: Sequence[Row]) -> Iterator[tuple[Row, Table]]:
    """Every row in order, with the table before it. It is always the same table, which changes after each row."""
    complete = {baseline.end["ord"]: baseline.begin_ord for baseline in baselines(rows)}
    table: Table = {}
    for row in rows:
        yield row, table
        if is_item(row):
            queues = table.setdefault(row["broker"], {})
            queues.pop(row["topic"], None)
            if not row["removed"]:
                queues[row["topic"]] = {**row, "perm_said": row["perm"]}
        elif row["group_removed"]:
            table.pop(row["broker"], None)
        elif row["code"] == Kind.WRITE_PERMISSION:
            for item in table.get(row["broker"], {}).values():
                item["perm"] = _permission(item["perm"], row)
        elif row["ord"] in complete:
            for queues in table.values():
                for topic in [topic for topic, item in queues.items() if item["ord"] < complete[row["ord"]]]:
                    del queues[topic]


def after_entries(rows: Sequence[Row]) -> Iterator[tuple[Row, Table]]:
    """Every entry with the table after it and after its items."""
    last: Row | None = None
    table: Table = {}
    for row, table in played(rows):
        if last is not None and last["ord"] != row["ord"]:
            yield last, table
        last = row
    if last is not None:
        yield last, table


def present_queues(rows: Sequence[Row]) -> dict[Queue, dict[str, Any]]:
    """The queue items after these rows, with the permissions that they have then."""
    table: Table = {}
    for _, table in played(rows):  # noqa: B007 the table after the last row counts
        pass
    return {(topic, broker): item for broker, queues in table.items() for topic, item in queues.items()}


def _permission(perm: int, row: Row) -> int:
    if row["rule"] == "set":
        return int(row["perm"])
    assert row["rule"] == "clear-write"
    return perm & ~WRITE


def up_addresses(seats: dict[Seat, list[Evidence]]) -> dict[str, dict[int, str]]:
    """Broker name -> id -> address. If several clusters use the name, the last evidence about an id counts."""
    addresses: dict[str, dict[int, str]] = {}
    for (_, broker, broker_id), of_seat in sorted(seats.items(), key=lambda seat: int(seat[1][-1].row["ord"])):
        addresses.setdefault(broker, {}).pop(broker_id, None)
        if last_state(of_seat) == UP:
            registered = [found.row for found in of_seat if found.state == UP]
            addresses[broker][broker_id] = registered[-1]["addr"]
    return addresses


def describe_groups(rows: Sequence[Row]) -> tuple[dict[str, Row], dict[str, str]]:
    """Broker name -> the entry that last described the group; broker name -> the cluster that first named the group
    since it was last removed.
    """
    flags: dict[str, Row] = {}
    owners: dict[str, str] = {}
    for row in rows:
        if is_entry(row) and row["code"] in _FLAGGED:
            flags[row["broker"]] = row
            owners.setdefault(row["broker"], row["cluster"])
        if row["group_removed"]:
            owners.pop(row["broker"], None)
    return flags, {broker: str(owners.get(broker) or row["cluster"]) for broker, row in flags.items()}


def doubt(rows: Sequence[Row]) -> tuple[int, int] | None:
    """The first and last version that were lost and not repaired.

    The lost entries may have changed anything. Only a complete baseline that began after them makes answers certain
    again, and then all answers.
    """
    repaired = max((baseline.begin_ord for baseline in baselines(rows)), default=-1)
    lost = [row for row in rows if is_entry(row) and row["code"] in LOST_CODES and row["ord"] > repaired]
    if not lost:
        return None
    return min(row["from_version"] for row in lost), max(row["to_version"] for row in lost)


def routes_of(rows: Sequence[Row], topic: str | None = None) -> list[dict[str, Any]]:
    addresses = up_addresses(evidence(rows))
    flags, owners = describe_groups(rows)
    unsure = doubt(rows)
    return [
        {
            "topic": name,
            "cluster": owners.get(broker, item["cluster"]),
            "broker": broker,
            "read_queues": item["read_queues"],
            "write_queues": item["write_queues"],
            "perm": item["perm"],
            "flags": item["flags"],
            "addresses": addresses.get(broker, {}),
            "zone": flags[broker]["zone"] if broker in flags else None,
            "acting": bool(flags[broker]["acting"]) if broker in flags else False,
            "certain": unsure is None,
            "doubt_from_version": unsure[0] if unsure else None,
            "doubt_to_version": unsure[1] if unsure else None,
        }
        for (name, broker), item in sorted(present_queues(rows).items())
        if topic in (None, name)
    ]


def routes_at(history: HistoryRows, instant: Instant, topic: str | None = None) -> list[dict[str, Any]]:
    return routes_of(until(history, instant), topic)


_COMPARED = ("read_queues", "write_queues", "perm", "flags")
_GROUP_CODES = UP_CODES | {Kind.BROKER_REMOVED, Kind.GROUP_CHANGED, Kind.WRITE_PERMISSION}
_LISTED_ENTRIES = 20


def route_diff(
    history: HistoryRows, earlier: Instant, later: Instant, topic: str | None = None
) -> list[dict[str, Any]]:
    """The differences of each topic in each group, and those of each group as a whole (without a topic)."""
    old = _by_queue(routes_at(history, earlier, topic))
    new = _by_queue(routes_at(history, later, topic))
    known_before = {row["ord"] for row in until(history, earlier)}
    between: dict[str, list[Row]] = {}
    for row in until(history, later):
        if row["ord"] not in known_before:
            between.setdefault(row["broker"], []).append(row)
    found: list[dict[str, Any]] = []
    for name, broker in sorted(old.keys() | new.keys()):
        before, after = old.get((name, broker)), new.get((name, broker))
        if before and after and all(before[value] == after[value] for value in _COMPARED):
            continue
        entries = _entries(between.get(broker, []), name)
        found.append(_difference(name, broker, before, after, entries, _COMPARED))
    changed = {row["broker"] for row in found}
    for broker in sorted({broker for _, broker in old.keys() | new.keys()}):
        before, after = _any_of(old, broker), _any_of(new, broker)
        entries = _entries(between.get(broker, []), None)
        differs = before is None or after is None or before["addresses"] != after["addresses"]
        if differs or (entries and broker in changed):
            found.append(_difference(None, broker, before, after, entries, ["addresses"]))
    return found


def _any_of(routes: dict[Queue, Row], broker: str) -> Row | None:
    """All topics of a group have the same addresses and the same cluster."""
    return next((row for (_, name), row in routes.items() if name == broker), None)


def _difference(
    topic: str | None,
    broker: str,
    before: Row | None,
    after: Row | None,
    entries: Sequence[Row],
    names: Sequence[str],
) -> dict[str, Any]:
    columns = (*_COMPARED, "addresses")
    return {
        "topic": topic,
        "cluster": (after or before or {})["cluster"],
        "broker": broker,
        "difference": "changed" if before and after else "added" if after else "removed",
        **{f"{name}_before": before[name] if before and name in names else None for name in columns},
        **{f"{name}_after": after[name] if after and name in names else None for name in columns},
        "entries": list(entries[-_LISTED_ENTRIES:]),
        "entry_count": len(entries),
    }


def _by_queue(routes: Sequence[Row]) -> dict[Queue, Row]:
    return {(row["topic"], row["broker"]): row for row in routes}


def _entries(of_group: Sequence[Row], topic: str | None) -> list[dict[str, Any]]:
    """The entries with an item of the topic; without a topic, those about the group as a whole."""
    about = {
        row["ord"]
        for row in of_group
        if (row["topic"] == topic if topic is not None else row["code"] in _GROUP_CODES and is_entry(row))
    }
    return [
        {name: row[name] for name in ("version", "kind", "cause", "actor", "source")}
        for row in of_group
        if is_entry(row) and row["ord"] in about
    ]
