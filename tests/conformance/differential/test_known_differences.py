"""The intended differences between Apache's and Routebook's answers, as docs/compatibility.md describes them.

These requests leave incomplete entries in Apache's tables. So they have processes of their own, and each uses
other names.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.conformance.differential.cleanup import members_of
from tests.conformance.differential.connections import RealSide, ask
from tests.conformance.differential.frames import NEWEST, Request
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

ADDRESS = "127.0.0.9:10911"
SEAT: Mapping[str, object] = {
    "clusterName": "@east",
    "brokerName": "@a",
    "brokerAddr": ADDRESS,
    "brokerId": "0",
    "haServerAddr": "127.0.0.9:10912",
}
QUEUES = b'{"queueDatas":[{"brokerName":"@a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'


def table(*topics: object, state_version: int = 0, **wrapper: object) -> bytes:
    """The body of a registration. A topic is its name or its whole configuration."""
    configs = {f"@{i}": {"topicName": topic} if isinstance(topic, str) else topic for i, topic in enumerate(topics)}
    version = {"counter": 1, "stateVersion": state_version, "timestamp": 1}
    return json.dumps(
        {"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": configs} | wrapper}
    ).encode()


def seat(**changes: object) -> dict[str, object]:
    """The fields of a seat. None removes a field."""
    return {key: value for key, value in ({**SEAT, **changes}).items() if value is not None}


@dataclass(frozen=True)
class KnownDifference:
    request: Request
    apache: int
    routebook: int
    takes_seat: tuple[bool, bool] | None = None
    """Whether the broker has a seat afterwards, in Apache's table and in ours."""
    registered_before: bool = False


def registered(body: bytes, *, version: int = NEWEST, **changes: object) -> Request:
    return Request(103, seat(**changes), body, version)


GOOD = table("@one", "@two")
LONG = "x" * 301

KNOWN_DIFFERENCES = {
    # Apache's name server fails halfway, and answers success.
    "103 without clusterName": KnownDifference(registered(GOOD, clusterName=None), 0, 1, (False, False)),
    "103 without brokerName": KnownDifference(registered(GOOD, brokerName=None), 0, 1, (False, False)),
    "103 without brokerAddr": KnownDifference(registered(GOOD, brokerAddr=None), 0, 1, (False, False)),
    "103 with a topic without a name": KnownDifference(registered(table("@one", {"perm": 6})), 0, 1, (True, False)),
    "103 with a mapping without a host": KnownDifference(
        registered(table("@one", "@two", topicQueueMappingInfoMap={"@one": {"topic": "@one"}})), 0, 1, (True, False)
    ),
    "103 with a null table, before 3.0.11": KnownDifference(registered(b"null", version=36), 0, 1, (False, False)),
    "103 with a null wrapper": KnownDifference(
        registered(b'{"topicConfigSerializeWrapper":null}'), 0, 0, (False, True)
    ),
    "104 without brokerId": KnownDifference(
        Request(104, seat(brokerId=None)), 0, 0, (True, False), registered_before=True
    ),
    # Routebook refuses these names and addresses.
    "103 with an invalid address": KnownDifference(registered(GOOD, brokerAddr="nonsense"), 0, 1, (True, False)),
    "103 with a negative id": KnownDifference(registered(GOOD, brokerId="-1"), 0, 1, (True, False)),
    "103 with a long topic": KnownDifference(registered(table("@one", "@" + LONG)), 0, 1, (True, False)),
    "103 with a control character": KnownDifference(registered(table("@one", "@\n")), 0, 1, (True, False)),
    "103 with too many queues": KnownDifference(
        registered(table("@one", {"topicName": "@two", "perm": 6, "readQueueNums": 2**31 - 1})), 0, 1, (True, False)
    ),
    "103 with an impossible state version": KnownDifference(
        registered(table("@one", "@two", state_version=2**63 - 1)), 0, 1, (True, False)
    ),
    "103 with an empty name": KnownDifference(registered(GOOD, brokerName=""), 0, 1),
    "217 with a long topic": KnownDifference(Request(217, {"topic": "@" + LONG}, QUEUES), 0, 1, registered_before=True),
    "100 with a long value": KnownDifference(
        Request(100, {"namespace": "@config", "key": "k", "value": "v" * 65_537}), 0, 1
    ),
    "100 with an empty namespace": KnownDifference(Request(100, {"namespace": "", "key": "k", "value": "v"}), 0, 1),
    # Routebook reads a body that is not UTF-8 as null, as 5.3.3 does.
    "217 that is not UTF-8": KnownDifference(Request(217, {"topic": "@one"}, b'"\xff"'), 1, 0),
    "322 that is not UTF-8": KnownDifference(Request(322, seat(), b'"\xff"'), 1, 0),
}


def named(request: Request, prefix: str) -> Request:
    ext = {k: v.replace("@", prefix) if isinstance(v, str) else v for k, v in (request.ext or {}).items()}
    return replace(request, ext=ext, body=request.body.replace(b"@", prefix.encode()))


@pytest.mark.parametrize(
    "difference", KNOWN_DIFFERENCES.values(), ids=[name.replace(" ", "-") for name in KNOWN_DIFFERENCES]
)
def test_an_intended_difference_is_as_documented(
    difference: KnownDifference, apache: RealSide, routebook: RealSide
) -> None:
    prefix, sides = secrets.token_hex(4), (apache, routebook)
    if difference.registered_before:
        assert [ask(side, named(registered(GOOD), prefix)).code for side in sides] == [0, 0]
    codes = [ask(side, named(difference.request, prefix)).code for side in sides]
    assert codes == [difference.apache, difference.routebook]
    for side, is_seated in zip(sides, difference.takes_seat or (), strict=False):
        assert_seat(side, f"{prefix}a", is_seated)


def assert_seat(side: RealSide, broker: str, is_seated: bool) -> None:
    """Waits, since 104 takes effect after its answer."""
    wait_until(lambda: bool(members_of(side, broker)) is is_seated, f"{side.name}: {broker} has a seat: {is_seated}")


def test_a_header_beyond_128_kib_ends_the_connection(apache: RealSide, routebook: RealSide) -> None:
    long = Request(105, {"topic": "any", "pad": "p" * 131_072})
    assert ask(apache, long, connection="long").code == 17
    with pytest.raises(ConnectionError):
        ask(routebook, long, connection="long")
    apache.drop("long")
    routebook.drop("long")


def test_a_lost_connection_removes_all_brokers_on_it(apache: RealSide, routebook: RealSide) -> None:
    """Apache's name server removes one broker of a container at once, and the others after their timeout."""
    names = [secrets.token_hex(4) for _ in range(3)]
    for side in (apache, routebook):
        for number, name in enumerate(names):
            address = f"127.0.0.{20 + number}:10911"
            assert ask(side, named(registered(GOOD, brokerAddr=address), name), connection="container").code == 0
        side.drop("container")

    def remaining(side: RealSide) -> int:
        return sum(bool(members_of(side, f"{name}a")) for name in names)

    wait_until(lambda: remaining(apache) == 2, "Apache's name server removes one")
    wait_until(lambda: remaining(routebook) == 0, "Routebook removes all")
    assert remaining(apache) == 2
