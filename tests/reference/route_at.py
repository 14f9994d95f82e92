"""What the history says was so, from entries alone: the formulas by which a pipeline answers, in plain Python.

Per (topic, broker): Q its last queue item, G the broker's last entry with `group_removed`. Permission: that of Q, or of
a later `set` for the broker; without the write bit if a `clear-write` came after both. A baseline's end takes away
whatever was last heard of before its beginning.
"""

from collections.abc import Iterable
from typing import Any

from routebook.model.topic import PERM_WRITE

Entry = tuple[int, int, dict[str, Any]]
"""Milliseconds, version, payload."""
Queue = tuple[int, int, int, int]
"""Read queues, write queues, permission, flags."""

_SEAT_TAKEN = ("broker-registered", "broker-changed", "baseline-seat")


def queues_at(entries: Iterable[Entry]) -> dict[tuple[str, str], Queue]:
    """(Topic, broker) → what a lookup would show."""
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
                last_item = {key: found for key, found in last_item.items() if found[0] > begin}
    found: dict[tuple[str, str], Queue] = {}
    for (topic, broker), (version, item) in last_item.items():
        if "x" in item or version < removed.get(broker, 0):
            continue
        since, perm = max((version, item["p"]), set_to.get(broker, (0, 0)))
        if cleared.get(broker, 0) > since:
            perm &= ~PERM_WRITE
        found[topic, broker] = (item["r"], item["w"], perm, item["f"])
    return found


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
            last = {seat: found for seat, found in last.items() if found[0] > begin}
    return {seat: address for seat, (_, address) in last.items()}
