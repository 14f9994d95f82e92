"""The verdicts on what clients saw can be otherwise. Runs without HAProxy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.balancing.lookups import Route
from tests.balancing.seen import Seen, SeenByKind
from tests.balancing.verdicts import assert_a_death_cost_what_waited, assert_no_lookup_failed

KINDS = ("following", "old", "brief", "http")
LOST = "the connection ended"
GOOD = Seen(answered=200)
ROUTE = Route("orders", {"broker-a": "127.0.4.1:1", "broker-b": "127.0.4.1:2"})


def by(kind: str, *each: Seen) -> SeenByKind:
    return SeenByKind(kind, [*each, GOOD, GOOD], seconds=10.0)


def all_kinds(**other: SeenByKind) -> Mapping[str, SeenByKind]:
    return {kind: by(kind) for kind in KINDS} | other


def seen_at_a_death(seen: Mapping[str, SeenByKind]) -> None:
    assert_a_death_cost_what_waited(seen, connected=11, share=13)


def one_lost(count: int) -> list[Seen]:
    return [replace(GOOD, failed=[LOST]) for _ in range(count)]


def one_repeated(count: int) -> list[Seen]:
    return [replace(GOOD, retried=1) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "spoiled",
    [
        replace(GOOD, answered=0),
        replace(GOOD, answered=99),
        replace(GOOD, wrong=["no queues"]),
        replace(GOOD, failed=[LOST, LOST]),
        replace(GOOD, retried=4),
    ],
    ids=["no lookups", "few lookups", "a wrong answer", "failed twice", "repeated too often"],
)
def test_what_one_client_saw_does_not_hide_among_the_others(spoiled: Seen, kind: str) -> None:
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(by(kind, spoiled), retries=3)
    if spoiled.retried == 0 or kind == "old":
        with pytest.raises(AssertionError):
            seen_at_a_death(all_kinds(**{kind: by(kind, spoiled)}))


def test_without_a_measured_time_nothing_is_proven() -> None:
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(SeenByKind("old", [GOOD]), retries=0)


def test_a_drain_costs_no_lookup_and_each_client_a_repetition_at_most() -> None:
    assert_no_lookup_failed(by("old", *one_repeated(15)), retries=1)
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(by("old", *one_lost(1)), retries=1)


@pytest.mark.parametrize(
    "seen",
    [
        all_kinds(),
        all_kinds(following=by("following", *one_lost(6)), old=by("old", *one_repeated(5))),
        all_kinds(following=by("following", *one_lost(11)), brief=by("brief", *one_lost(2))),
    ],
    ids=["nothing", "all who were connected", "and brief ones"],
)
def test_a_death_may_cost_what_waited(seen: Mapping[str, SeenByKind]) -> None:
    seen_at_a_death(seen)


@pytest.mark.parametrize(
    "seen",
    [
        all_kinds(following=by("following", replace(GOOD, failed=[LOST] * 11))),
        all_kinds(following=by("following", *one_lost(12))),
        all_kinds(following=by("following", *one_lost(6)), old=by("old", *one_repeated(6))),
        all_kinds(following=by("following", *one_lost(11)), brief=by("brief", *one_lost(3))),
        all_kinds(old=by("old", *one_lost(1))),
        all_kinds(old=by("old", replace(GOOD, retried=2))),
        all_kinds(http=by("http", *one_lost(1))),
    ],
    ids=[
        "one fails as often as there were connections",
        "more than were connected",
        "more than were connected, of two kinds",
        "more than the worker's share",
        "an old one fails",
        "an old one repeats twice",
        "one over HTTP fails",
    ],
)
def test_a_death_may_cost_no_more(seen: Mapping[str, SeenByKind]) -> None:
    with pytest.raises(AssertionError):
        seen_at_a_death(seen)


def body(**other: object) -> bytes:
    queue = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
    names = {"broker-a": "127.0.4.1:1", "broker-b": "127.0.4.1:2"}
    route = {
        "brokerDatas": [
            {"cluster": "east", "brokerName": name, "brokerAddrs": {"0": where}} for name, where in names.items()
        ],
        "queueDatas": [{"brokerName": name, **queue} for name in names],
    }
    return json.dumps(route | other).encode()


def without_quotes(said: bytes) -> bytes:
    """As clients get it that do not ask for standard JSON."""
    return said.replace(b'"0":', b"0:")


@pytest.mark.parametrize("written", [bytes, without_quotes])
def test_a_route_has_all_brokers_with_their_queues(written: Callable[[bytes], bytes]) -> None:
    assert ROUTE.lacks(written(body())) == ""
    assert ROUTE.lacks(written(body(queueDatas=[]))) != ""
    assert ROUTE.lacks(written(body(brokerDatas=[]))) != ""
    assert ROUTE.lacks(written(body()).replace(b"127.0.4.1:2", b"127.0.4.1:3")) != ""


@pytest.mark.parametrize("said", [b"", b"{}", b"null", b"[]", b"<html>"])
def test_what_is_no_route_at_all_is_none(said: bytes) -> None:
    assert ROUTE.lacks(said) != ""
