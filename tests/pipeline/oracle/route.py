"""1: what the table said at an instant."""

from collections.abc import Iterator, Sequence
from typing import Any

from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.states import UP, Evidence, evidence, last_state
from tests.pipeline.oracle.told import (
    LOST_CODES,
    UP_CODES,
    Group,
    Row,
    Told,
    baselines,
    group_of,
    is_entry,
    is_item,
    until,
)

Queue = tuple[str, str, str]
"""Topic, cluster, broker."""

WRITE, READ = 2, 4
_FLAGGED = UP_CODES | {Kind.GROUP_CHANGED}


Table = dict[Group, dict[str, dict[str, Any]]]
"""The queue items of a group by topic. `perm` is what they have by now, `perm_said` what their item said."""


def played(rows: Sequence[Row]) -> Iterator[tuple[Row, Table]]:
    """Every row, in order, with the table just before it. The table is one and the same, changed behind each row."""
    whole = {baseline.end["ord"]: baseline.begin_ord for baseline in baselines(rows)}
    table: Table = {}
    for row in rows:
        yield row, table
        if is_item(row):
            queues = table.setdefault(group_of(row), {})
            queues.pop(row["topic"], None)
            if not row["removed"]:
                queues[row["topic"]] = {**row, "perm_said": row["perm"]}
        elif row["group_removed"]:
            table.pop(group_of(row), None)
        elif row["code"] == Kind.WRITE_PERMISSION:
            for item in table.get(group_of(row), {}).values():
                item["perm"] = _permission(item["perm"], row)
        elif row["ord"] in whole:
            for queues in table.values():
                for topic in [topic for topic, item in queues.items() if item["ord"] < whole[row["ord"]]]:
                    del queues[topic]


def present_queues(rows: Sequence[Row]) -> dict[Queue, dict[str, Any]]:
    """The queue items that hold after these rows, with the permission they have by then."""
    table: Table = {}
    for _, table in played(rows):  # noqa: B007 -- what is left behind the last row counts
        pass
    return {(topic, *group): item for group, queues in table.items() for topic, item in queues.items()}


def _permission(perm: int, row: Row) -> int:
    if row["rule"] == "set":
        return int(row["perm"])
    assert row["rule"] == "clear-write"
    return perm & ~WRITE


def up_addresses(told: dict[tuple[str, str, int], list[Evidence]]) -> dict[Group, dict[int, str]]:
    addresses: dict[Group, dict[int, str]] = {}
    for (cluster, broker, broker_id), of_seat in told.items():
        if last_state(of_seat) == UP:
            registered = [found.row for found in of_seat if found.state == UP]
            addresses.setdefault((cluster, broker), {})[broker_id] = registered[-1]["addr"]
    return addresses


def doubt(rows: Sequence[Row]) -> tuple[int, int] | None:
    """What was lost and not repaired: first and last version.

    Anything may have happened in what was lost, a new seat or a removal included: only a whole baseline that began
    behind it makes an answer certain again, and then every answer.
    """
    repaired = max((baseline.begin_ord for baseline in baselines(rows)), default=-1)
    lost = [row for row in rows if is_entry(row) and row["code"] in LOST_CODES and row["ord"] > repaired]
    if not lost:
        return None
    return min(row["from_version"] for row in lost), max(row["to_version"] for row in lost)


def routes_of(rows: Sequence[Row], topic: str | None = None) -> list[dict[str, Any]]:
    addresses = up_addresses(evidence(rows))
    flags: dict[Group, Row] = {}
    for row in rows:
        if is_entry(row) and row["code"] in _FLAGGED:
            flags[group_of(row)] = row
    unsure = doubt(rows)
    return [
        {
            "topic": name,
            "cluster": cluster,
            "broker": broker,
            "read_queues": item["read_queues"],
            "write_queues": item["write_queues"],
            "perm": item["perm"],
            "flags": item["flags"],
            "addresses": addresses.get((cluster, broker), {}),
            "zone": flags[cluster, broker]["zone"] if (cluster, broker) in flags else None,
            "acting": flags[cluster, broker]["acting"] if (cluster, broker) in flags else None,
            "certain": unsure is None,
            "doubt_from_version": unsure[0] if unsure else None,
            "doubt_to_version": unsure[1] if unsure else None,
        }
        for (name, cluster, broker), item in sorted(present_queues(rows).items())
        if topic in (None, name)
    ]


def routes_at(told: Told, instant: Instant, topic: str | None = None) -> list[dict[str, Any]]:
    return routes_of(until(told, instant), topic)


def route_json(rows: Sequence[Row]) -> dict[str, Any] | None:
    """As the service answers a lookup: None when no broker is known."""
    if not any(row["addresses"] for row in rows):
        return None
    return {
        "brokerDatas": [
            {
                "brokerAddrs": {str(broker_id): row["addresses"][broker_id] for broker_id in sorted(row["addresses"])},
                "brokerName": row["broker"],
                "cluster": row["cluster"],
                "enableActingMaster": bool(row["acting"]),
                **({"zoneName": row["zone"]} if row["zone"] else {}),
            }
            for row in rows
            if row["addresses"]
        ],
        "queueDatas": [
            {
                "brokerName": row["broker"],
                "perm": row["perm"],
                "readQueueNums": row["read_queues"],
                "topicSysFlag": row["flags"],
                "writeQueueNums": row["write_queues"],
            }
            for row in rows
        ],
    }
