"""Derives seats and queues from history entries alone, in plain Python, with the formulas that the pipeline uses.

A (topic, broker) has the values of its last queue item, unless a later entry of the broker has `group_removed`. Its
permission is that of the item or of a later `set` for the broker, without the write bit if a `clear-write` follows.
The end of a baseline removes everything that was last named before its beginning.
"""

from collections.abc import Iterable
from typing import Any

from routebook.model.broker import PERM_WRITE

Entry = tuple[int, int, dict[str, Any]]
"""Milliseconds, version, payload."""
Queue = tuple[int, int, int, int]
"""Read queues, write queues, permission, flags."""

_SEAT_TAKEN = ("broker-registered", "broker-changed", "baseline-seat")


def queues_at(entries: Iterable[Entry]) -> dict[tuple[str, str], Queue]:
    """(Topic, broker) → the queue entry that a lookup would show."""
    last_item: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    removed: dict[str, int] = {}
    set_to: dict[str, tuple[int, int]] = {}
    cleared: dict[str, int] = {}
    begin = 0
    for _, version, payload in entries:
        broker = payload.get("broker", "")
        for item in payload.get("queues", ()):
            last_item[item["t"], broker] = (version, item)
        if payload.get("group_removed"):
            removed[broker] = version
        match payload["kind"], payload.get("rule"):
            case "write-permission", "set":
                set_to[broker] = (version, payload["perm"])
            case "write-permission", "clear-write":
                cleared[broker] = version
            case "baseline-begin", _:
                begin = version
            case "baseline-end", _:
                last_item = {key: item for key, item in last_item.items() if item[0] > begin}
    queues: dict[tuple[str, str], Queue] = {}
    for (topic, broker), (version, item) in last_item.items():
        if "x" in item or version < removed.get(broker, 0):
            continue
        since, perm = max((version, item["p"]), set_to.get(broker, (0, 0)))
        if cleared.get(broker, 0) > since:
            perm &= ~PERM_WRITE
        queues[topic, broker] = (item["r"], item["w"], perm, item["f"])
    return queues


def seats_at(entries: Iterable[Entry]) -> dict[tuple[str, int], str]:
    """(Broker, id) → address."""
    last: dict[tuple[str, int], tuple[int, str]] = {}
    begin = 0
    for _, version, payload in entries:
        kind = payload["kind"]
        if kind in _SEAT_TAKEN:
            last[payload["broker"], payload["id"]] = (version, payload["addr"])
        elif kind == "broker-removed":
            if last.get((payload["broker"], payload["id"]), (0, ""))[1] == payload["addr"]:
                del last[payload["broker"], payload["id"]]
        elif kind == "baseline-begin":
            begin = version
        elif kind == "baseline-end":
            last = {seat: taken for seat, taken in last.items() if taken[0] > begin}
    return {seat: address for seat, (_, address) in last.items()}
