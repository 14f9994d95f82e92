"""Where Routebook answers otherwise on purpose: both answers, each as docs/compatibility.md tells it.

These leave debris behind in Apache's tables, so they have a process of their own, and names of their own each.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.conformance.differential.emptying import members_of
from tests.conformance.differential.frames import NEWEST, Request
from tests.conformance.differential.line import RealSide, ask
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


def table(*topics: object, **wrapper: object) -> bytes:
    """The registration's body; a topic that is not a text stands for its whole config."""
    configs = {f"@{i}": {"topicName": one} if isinstance(one, str) else one for i, one in enumerate(topics)}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    return json.dumps(
        {"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": configs} | wrapper}
    ).encode()


def seat(**changes: object) -> dict[str, object]:
    """None leaves the field out."""
    return {key: value for key, value in ({**SEAT, **changes}).items() if value is not None}


@dataclass(frozen=True)
class Departure:
    asked: Request
    apache: int
    routebook: int
    takes_seat: tuple[bool, bool] | None = None
    """Whether broker a sits in its group afterwards: at Apache's, here."""
    registered_before: bool = False


def registered(body: bytes, *, version: int = NEWEST, **changes: object) -> Request:
    return Request(103, seat(**changes), body, version)


GOOD = table("@one", "@two")
LONG = "x" * 301

DEPARTURES = {
    # Apache's begins, throws in the middle, and says that all went well.
    "103 without clusterName": Departure(registered(GOOD, clusterName=None), 0, 1, (False, False)),
    "103 without brokerName": Departure(registered(GOOD, brokerName=None), 0, 1, (False, False)),
    "103 without brokerAddr": Departure(registered(GOOD, brokerAddr=None), 0, 1, (False, False)),
    "103 with a topic without a name": Departure(registered(table("@one", {"perm": 6})), 0, 1, (True, False)),
    "103 with a mapping without a host": Departure(
        registered(table("@one", "@two", topicQueueMappingInfoMap={"@one": {"topic": "@one"}})), 0, 1, (True, False)
    ),
    "103 with a null table, before 3.0.11": Departure(registered(b"null", version=36), 0, 1, (False, False)),
    "103 with a null wrapper": Departure(registered(b'{"topicConfigSerializeWrapper":null}'), 0, 0, (False, True)),
    "104 without brokerId": Departure(Request(104, seat(brokerId=None)), 0, 0, (True, False), registered_before=True),
    # What is no name or address here.
    "103 with an address that is none": Departure(registered(GOOD, brokerAddr="nonsense"), 0, 1, (True, False)),
    "103 with a negative id": Departure(registered(GOOD, brokerId="-1"), 0, 1, (True, False)),
    "103 with a long topic": Departure(registered(table("@one", "@" + LONG)), 0, 1, (True, False)),
    "103 with a control character": Departure(registered(table("@one", "@\n")), 0, 1, (True, False)),
    "103 with an empty name": Departure(registered(GOOD, brokerName=""), 0, 1),
    "217 with a long topic": Departure(Request(217, {"topic": "@" + LONG}, QUEUES), 0, 1, registered_before=True),
    "100 with a long value": Departure(Request(100, {"namespace": "@config", "key": "k", "value": "v" * 65_537}), 0, 1),
    "100 with an empty namespace": Departure(Request(100, {"namespace": "", "key": "k", "value": "v"}), 0, 1),
    # Bytes that are not UTF-8 decode to null, as with 5.3.3.
    "217 that is not UTF-8": Departure(Request(217, {"topic": "@one"}, b'"\xff"'), 1, 0),
    "322 that is not UTF-8": Departure(Request(322, seat(), b'"\xff"'), 1, 0),
}


def named(request: Request, word: str) -> Request:
    ext = {k: v.replace("@", word) if isinstance(v, str) else v for k, v in (request.ext or {}).items()}
    return replace(request, ext=ext, body=request.body.replace(b"@", word.encode()))


@pytest.mark.parametrize("departure", DEPARTURES.values(), ids=[name.replace(" ", "-") for name in DEPARTURES])
def test_a_departure_is_as_it_is_told(departure: Departure, apache: RealSide, routebook: RealSide) -> None:
    word, sides = secrets.token_hex(4), (apache, routebook)
    if departure.registered_before:
        assert [ask(side, named(registered(GOOD), word)).code for side in sides] == [0, 0]
    told = [ask(side, named(departure.asked, word)).code for side in sides]
    assert told == [departure.apache, departure.routebook]
    for side, is_seated in zip(sides, departure.takes_seat or (), strict=False):
        expect_seat(side, f"{word}a", is_seated)


def expect_seat(side: RealSide, broker: str, is_seated: bool) -> None:
    """104 takes effect behind its answer."""
    wait_until(lambda: bool(members_of(side, broker)) is is_seated, f"{side.name}: {broker} is seated: {is_seated}")


def test_a_header_beyond_128_kib_ends_the_connection(apache: RealSide, routebook: RealSide) -> None:
    long = Request(105, {"topic": "any", "pad": "p" * 131_072})
    assert ask(apache, long, line="long").code == 17
    with pytest.raises(ConnectionError):
        ask(routebook, long, line="long")
    apache.drop("long")
    routebook.drop("long")


def test_of_several_brokers_on_one_connection_all_go_with_it(apache: RealSide, routebook: RealSide) -> None:
    """Of a container of brokers Apache's forgets one at once, the others after their timeout."""
    names = [secrets.token_hex(4) for _ in range(3)]
    for side in (apache, routebook):
        for number, name in enumerate(names):
            address = f"127.0.0.{20 + number}:10911"
            assert ask(side, named(registered(GOOD, brokerAddr=address), name), line="container").code == 0
        side.drop("container")

    def left(side: RealSide) -> int:
        return sum(bool(members_of(side, f"{name}a")) for name in names)

    wait_until(lambda: left(apache) == 2, "Apache's forgets one")
    wait_until(lambda: left(routebook) == 0, "Routebook forgets all")
    assert left(apache) == 2
