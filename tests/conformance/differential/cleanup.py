"""Cleans a name server up after a history. What it never deletes remains."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.differential.connections import Side, ask
from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.profiles import ORDER_NAMESPACE
from tests.support.waiting import wait_until

MARKER_ADDRESS = "127.255.0.1:10911"
"""The address of a broker that unregisters last. When it is removed, all queued removals before it are done."""
ROUNDS = 10


def marker(prefix: str) -> dict[str, object]:
    return _seat(f"{prefix}mark", f"{prefix}mark", MARKER_ADDRESS)


def members_of(side: Side, broker: str) -> dict[str, str]:
    return _members(ask(side, _group(broker)))


def clean_up(side: Side, prefix: str) -> None:
    """Unregisters all brokers, cluster by cluster, then deletes the topics and the key-values of ordered topics."""
    for _ in range(ROUNDS):
        info: Any = read_body(ask(side, Request(106)).body)[0]
        clusters: dict[str, list[str]] = info["clusterAddrTable"]
        unlisted = info["brokerAddrTable"].keys() - {name for names in clusters.values() for name in names}
        if not clusters and not unlisted:
            break
        for cluster, names in {**clusters, f"{prefix}unlisted": sorted(unlisted)}.items():
            _empty_cluster(side, cluster, names, prefix)
    else:
        raise AssertionError(f"{side.name} still has {info}")
    ask(side, Request(318, body=b"enableAllTopicList=true"))
    topics: Any = read_body(ask(side, Request(206)).body)[0]
    _ask_all(side, [Request(216, {"topic": topic}) for topic in topics["topicList"]])
    kv = ask(side, Request(219, {"namespace": ORDER_NAMESPACE}))
    if kv.code == 0:
        table: Any = read_body(kv.body)[0]
        _ask_all(side, [Request(102, {"namespace": ORDER_NAMESPACE, "key": key}) for key in table["table"]])


def _empty_cluster(side: Side, cluster: str, names: Sequence[str], prefix: str) -> None:
    """A cluster loses a broker name only when the last address unregisters with this cluster. So an address registers
    with it first.
    """
    if not names:
        return
    registrations = [Request(103, _seat(cluster, name, MARKER_ADDRESS)) for name in names]
    _ask_all(side, [*registrations, Request(103, marker(prefix))])
    groups = [_members(answer) for answer in _ask_all(side, [_group(name) for name in names])]
    departures = [
        Request(104, _seat(cluster, name, address))
        for name, members in zip(names, groups, strict=True)
        for address in {*members.values(), MARKER_ADDRESS}
    ]
    _ask_all(side, departures)
    ask(side, Request(104, marker(prefix)))
    wait_until(lambda: not members_of(side, f"{prefix}mark"), f"{side.name} removes all brokers of {cluster}")


def _ask_all(side: Side, requests: Sequence[Request]) -> list[Answer]:
    """Sends all requests before it reads the answers. Their order does not matter."""
    sent = [side.send("aside", request) for request in requests]
    return [side.receive("aside", opaque) for opaque in sent]


def _seat(cluster: str, name: str, address: str) -> dict[str, object]:
    return {"clusterName": cluster, "brokerName": name, "brokerAddr": address, "brokerId": "0", "haServerAddr": ""}


def _group(broker: str) -> Request:
    return Request(901, {"clusterName": "any", "brokerName": broker})


def _members(answer: Answer) -> dict[str, str]:
    parsed: Any = read_body(answer.body)[0]
    members: dict[str, str] = parsed["brokerMemberGroup"]["brokerAddrs"]
    return members
