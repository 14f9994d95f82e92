"""After a history: a name server is left as it was found, but for what it never forgets."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.differential.frames import Answer, Request, read_body
from tests.conformance.differential.line import Side, ask
from tests.conformance.differential.moods import ORDER_NAMESPACE
from tests.support.waiting import wait_until

MARK = "127.255.0.1:10911"
"""Of a broker that comes and goes again to show that the queue of departures has been worked off up to it."""
ROUNDS = 10


def mark_of(word: str) -> dict[str, object]:
    return _seat(f"{word}mark", f"{word}mark", MARK)


def members_of(side: Side, broker: str) -> dict[str, str]:
    return _members(ask(side, _group(broker)))


def empty(side: Side, word: str) -> None:
    """Unregisters whoever is there, cluster by cluster; then topics, then what an unordered history must not see."""
    for _ in range(ROUNDS):
        info: Any = read_body(ask(side, Request(106)).body)[0]
        clusters: dict[str, list[str]] = info["clusterAddrTable"]
        unlisted = info["brokerAddrTable"].keys() - {name for names in clusters.values() for name in names}
        if not clusters and not unlisted:
            break
        for cluster, names in {**clusters, f"{word}gone": sorted(unlisted)}.items():
            _empty_cluster(side, cluster, names, word)
    else:
        raise AssertionError(f"{side.name} keeps {info}")
    ask(side, Request(318, body=b"enableAllTopicList=true"))
    topics: Any = read_body(ask(side, Request(206)).body)[0]
    _ask_all(side, [Request(216, {"topic": topic}) for topic in topics["topicList"]])
    kv = ask(side, Request(219, {"namespace": ORDER_NAMESPACE}))
    if kv.code == 0:
        table: Any = read_body(kv.body)[0]
        _ask_all(side, [Request(102, {"namespace": ORDER_NAMESPACE, "key": key}) for key in table["table"]])


def _empty_cluster(side: Side, cluster: str, names: Sequence[str], word: str) -> None:
    """It forgets a name only with the last member that leaves through it: so one enters through it first."""
    if not names:
        return
    entering = [Request(103, _seat(cluster, name, MARK)) for name in names]
    _ask_all(side, [*entering, Request(103, mark_of(word))])
    groups = [_members(answer) for answer in _ask_all(side, [_group(name) for name in names])]
    leaving = [
        Request(104, _seat(cluster, name, address))
        for name, members in zip(names, groups, strict=True)
        for address in {*members.values(), MARK}
    ]
    _ask_all(side, leaving)
    ask(side, Request(104, mark_of(word)))
    wait_until(lambda: not members_of(side, f"{word}mark"), f"{side.name} empties {cluster}")


def _ask_all(side: Side, requests: Sequence[Request]) -> list[Answer]:
    """Side by side: none of them minds in which order they are taken."""
    sent = [side.send("aside", request) for request in requests]
    return [side.receive("aside", opaque) for opaque in sent]


def _seat(cluster: str, name: str, address: str) -> dict[str, object]:
    return {"clusterName": cluster, "brokerName": name, "brokerAddr": address, "brokerId": "0", "haServerAddr": ""}


def _group(broker: str) -> Request:
    return Request(901, {"clusterName": "any", "brokerName": broker})


def _members(answer: Answer) -> dict[str, str]:
    parsed: Any = read_body(answer.body)[0]
    found: dict[str, str] = parsed["brokerMemberGroup"]["brokerAddrs"]
    return found
