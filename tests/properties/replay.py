"""Rebuilds the route table from the entries of the history alone.

The pipeline does the same with Spark. Whatever cannot be rebuilt here would be wrong in its reports as well.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from routebook.model.broker import PERM_READ_WRITE, QueueData
from routebook.store.namespace import Namespace
from tests.properties.states import GroupState, RouteTable

Entry = tuple[int, int, dict[str, Any]]
"""Milliseconds, version, payload."""


async def read_history(namespace: Namespace) -> list[Entry]:
    entries: list[Entry] = []
    for entry_id, fields in await namespace.client.call("XRANGE", namespace.keys.changes, "-", "+"):
        assert fields[0] == b"d"
        assert len(fields) == 2
        assert len(fields[1]) <= 256 * 1024
        ms, _, version = entry_id.decode().partition("-")
        entries.append((int(ms), int(version), json.loads(fields[1])))
    return entries


def assert_versions_without_gaps(entries: list[Entry], *, last: int) -> None:
    assert [version for _, version, _ in entries] == list(range(1, last + 1))
    times = [ms for ms, _, _ in entries]
    assert times == sorted(times)


def assert_every_entry_is_complete(entries: list[Entry]) -> None:
    for _, version, payload in entries:
        missing = {"v", "kind", "actor", "source", *REQUIRED.get(payload["kind"], ())} - payload.keys()
        assert not missing, f"entry {version} ({payload['kind']}) lacks {sorted(missing)}"
        assert payload["v"] == 1
        assert payload["kind"] in REQUIRED, payload


_SEAT = ("cluster", "broker", "id", "addr", "incarnation")
_GROUP = ("cluster", "broker")
_REGISTERED_SEAT = (*_SEAT, "first", "zone", "acting", "ha", "timeout_ms")
REQUIRED = {
    "broker-registered": _REGISTERED_SEAT,
    "broker-changed": _REGISTERED_SEAT,
    "broker-removed": (*_SEAT, "last_heartbeat_ms", "timeout_ms", "group_removed", "cause"),
    "group-changed": (*_GROUP, "clusters", "zone", "acting"),
    "queues-changed": (*_GROUP, "queues", "cause"),
    "write-permission": (*_GROUP, "rule", "perm", "touched", "cause"),
    "kv-put": ("namespace", "key", "sha256"),
    "kv-deleted": ("namespace", "key"),
    "settings-changed": ("key", "value"),
    "identity-changed": ("name", "cause"),
    "expiry-held": ("brokers",),
    "expiry-released": ("brokers",),
    "expiry-paused": ("from_ms", "to_ms"),
    "baseline-begin": ("cause",),
    "baseline-seat": _REGISTERED_SEAT,
    "baseline-queues": (*_GROUP, "queues", "cause"),
    "baseline-end": ("begin", "entries"),
}


def replay(entries: Iterable[Entry]) -> RouteTable:
    """The entries begin with the first one of a store or with the beginning of a baseline."""
    table, in_baseline = RouteTable(), False
    for _, _, payload in entries:
        kind = payload["kind"]
        in_baseline = kind == "baseline-begin" or (in_baseline and kind != "baseline-end")
        apply = _APPLY.get(kind)
        if not in_baseline:
            assert_former_queues(table, payload)
        if in_baseline and kind == "write-permission":
            _change_permission(table, payload, is_complete=False)
        elif apply:
            apply(table, payload)
    return table


def assert_former_queues(table: RouteTable, payload: dict[str, Any]) -> None:
    if payload["kind"] not in {"broker-registered", "broker-changed"}:
        return
    known = table.queues.get(payload["broker"], {})
    items = {item["t"]: item for item in payload.get("queues", ())}
    former = {item["t"]: item for item in payload.get("before", {}).get("queues", ())}
    assert former.keys() <= items.keys()
    assert {topic for topic, item in items.items() if item.get("x") and topic in known} <= former.keys()
    for topic, item in former.items():
        data = known[topic]
        assert (item["r"], item["w"], item["p"], item["f"]) == (
            data.read_queues,
            data.write_queues,
            data.perm,
            data.flags,
        )


def _register_broker(table: RouteTable, payload: dict[str, Any]) -> None:
    broker, cluster = payload["broker"], payload["cluster"]
    table.clusters.setdefault(cluster, set()).add(broker)
    group = table.groups.get(broker) or GroupState(cluster, None, False, {})
    addresses = group.addresses | {payload["id"]: payload["addr"]}
    table.groups[broker] = replace(group, zone=payload["zone"], acting_master=payload["acting"], addresses=addresses)
    _put_queues(table, payload, by_request=False)


def _put_baseline_seat(table: RouteTable, payload: dict[str, Any]) -> None:
    """The entry has the cluster of the registration. The cluster of the group follows with its queues."""
    known = table.groups.get(payload["broker"])
    _register_broker(table, payload)
    if known:
        table.groups[payload["broker"]] = replace(table.groups[payload["broker"]], cluster=known.cluster)


def _put_baseline_queues(table: RouteTable, payload: dict[str, Any]) -> None:
    broker = payload["broker"]
    if "clusters" in payload:
        for cluster in payload["clusters"]:
            table.clusters.setdefault(cluster, set()).add(broker)
        if not payload.get("group_removed"):
            known = table.groups.get(broker)
            addresses = known.addresses if known else {}
            table.groups[broker] = GroupState(payload["cluster"], payload["zone"], payload["acting"], addresses)
    _put_queues(table, payload, by_request=payload["cause"] == "register-topic")


def _remove_broker(table: RouteTable, payload: dict[str, Any]) -> None:
    broker = payload["broker"]
    if payload["group_removed"]:
        _delete_group(table, broker)
        _remove_from_cluster(table, payload["cluster"], broker)
    elif broker in table.groups:
        group = table.groups[broker]
        remaining = {i: a for i, a in group.addresses.items() if (i, a) != (payload["id"], payload["addr"])}
        table.groups[broker] = replace(group, addresses=remaining)


def _change_group(table: RouteTable, payload: dict[str, Any]) -> None:
    broker = payload["broker"]
    for cluster in [name for name, names in table.clusters.items() if broker in names]:
        if cluster not in payload["clusters"]:
            _remove_from_cluster(table, cluster, broker)
    for cluster in payload["clusters"]:
        table.clusters.setdefault(cluster, set()).add(broker)
    if payload.get("group_removed"):
        _delete_group(table, broker)
    elif broker in table.groups or payload["cluster"] in payload["clusters"]:
        group = table.groups.get(broker) or GroupState(payload["cluster"], None, False, {})
        table.groups[broker] = replace(group, zone=payload["zone"], acting_master=payload["acting"])


def _change_queues(table: RouteTable, payload: dict[str, Any]) -> None:
    _put_queues(table, payload, by_request=payload["cause"] == "register-topic")


def _change_permission(table: RouteTable, payload: dict[str, Any], *, is_complete: bool = True) -> None:
    assert payload["rule"] in {"set", "clear-write"}
    queues = table.queues.get(payload["broker"], {})
    touched = 0
    for topic, data in queues.items():
        after = structs.replace(data, perm=PERM_READ_WRITE) if payload["rule"] == "set" else data.without_write()
        touched += after != data
        queues[topic] = after
    assert touched == payload["touched"] or (not is_complete and touched < payload["touched"])


def _put_queues(table: RouteTable, payload: dict[str, Any], *, by_request: bool) -> None:
    queues = table.queues.setdefault(payload["broker"], {})
    for item in payload.get("queues", ()):
        if item.get("x"):
            queues.pop(item["t"], None)
        else:
            queues[item["t"]] = QueueData(item["r"], item["w"], item["p"], item["f"], by_request)
    if not queues:
        del table.queues[payload["broker"]]


def _delete_group(table: RouteTable, broker: str) -> None:
    table.groups.pop(broker, None)
    table.queues.pop(broker, None)


def _remove_from_cluster(table: RouteTable, cluster: str, broker: str) -> None:
    names = table.clusters.get(cluster, set())
    names.discard(broker)
    if not names:
        table.clusters.pop(cluster, None)


_APPLY = {
    "broker-registered": _register_broker,
    "broker-changed": _register_broker,
    "broker-removed": _remove_broker,
    "group-changed": _change_group,
    "queues-changed": _change_queues,
    "write-permission": _change_permission,
    "baseline-seat": _put_baseline_seat,
    "baseline-queues": _put_baseline_queues,
}
