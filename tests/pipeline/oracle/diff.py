"""2: two routes beside each other, and what happened in between."""

from collections.abc import Sequence
from typing import Any

from routebook_pipeline.history import Instant
from routebook_pipeline.kinds import Kind
from tests.pipeline.oracle.route import Queue, routes_at
from tests.pipeline.oracle.told import UP_CODES, Row, Told, is_entry, until

_COMPARED = ("read_queues", "write_queues", "perm", "flags", "addresses")
_OF_THE_GROUP = UP_CODES | {Kind.BROKER_REMOVED, Kind.GROUP_CHANGED, Kind.WRITE_PERMISSION}


def route_diff(told: Told, earlier: Instant, later: Instant) -> list[dict[str, Any]]:
    old = _by_queue(routes_at(told, earlier))
    new = _by_queue(routes_at(told, later))
    known_before = {row["ord"] for row in until(told, earlier)}
    between: dict[str, list[Row]] = {}
    for row in until(told, later):
        if row["ord"] not in known_before:
            between.setdefault(row["broker"], []).append(row)
    found = []
    for queue in sorted(old.keys() | new.keys()):
        one, other = old.get(queue), new.get(queue)
        if one and other and all(one[name] == other[name] for name in _COMPARED):
            continue
        topic, broker = queue
        found.append(
            {
                "topic": topic,
                "cluster": (other or one or {})["cluster"],
                "broker": broker,
                "difference": "changed" if one and other else "added" if other else "removed",
                **{f"{name}_before": one[name] if one else None for name in _COMPARED},
                **{f"{name}_after": other[name] if other else None for name in _COMPARED},
                "entries": _entries(between.get(broker, []), queue[0]),
            }
        )
    return found


def _by_queue(routes: Sequence[Row]) -> dict[Queue, Row]:
    return {(row["topic"], row["broker"]): row for row in routes}


def _entries(of_group: Sequence[Row], topic: str) -> list[dict[str, Any]]:
    """Entries about the topic of this group, and about the group as a whole, once each."""
    about = {row["ord"] for row in of_group if row["topic"] == topic}
    about |= {row["ord"] for row in of_group if row["code"] in _OF_THE_GROUP and is_entry(row)}
    return [
        {name: row[name] for name in ("version", "kind", "cause", "actor", "source")}
        for row in of_group
        if is_entry(row) and row["ord"] in about
    ]
