"""The verdicts of the HAProxy scenarios can fail. Runs without HAProxy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.balancing.clients import Route
from tests.balancing.results import ClientResult, KindResult
from tests.balancing.verdicts import assert_no_lookup_failed, assert_only_lookups_in_flight_failed

KINDS = ("go_away", "legacy", "one_shot", "http")
LOST = "the connection ended"
GOOD = ClientResult(answered=200)
ROUTE = Route("orders", {"broker-a": "127.0.4.1:1", "broker-b": "127.0.4.1:2"})


def result_of(kind: str, *each: ClientResult) -> KindResult:
    return KindResult(kind, [*each, GOOD, GOOD], seconds=10.0)


def all_kinds(**clients: list[ClientResult]) -> Mapping[str, KindResult]:
    """The results of all kinds of clients; those not given are good."""
    return {kind: result_of(kind, *clients.get(kind, [])) for kind in KINDS}


def assert_after_a_kill(results: Mapping[str, KindResult]) -> None:
    assert_only_lookups_in_flight_failed(results, connected=11, worker_share=13)


def clients_with_a_failure(count: int) -> list[ClientResult]:
    return [replace(GOOD, failed=[LOST]) for _ in range(count)]


def clients_with_a_retry(count: int) -> list[ClientResult]:
    return [replace(GOOD, retried=1) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, answered=0),
        replace(GOOD, answered=99),
        replace(GOOD, wrong=["no queues"]),
        replace(GOOD, failed=[LOST, LOST]),
        replace(GOOD, retried=4),
    ],
    ids=["no lookups", "few lookups", "a wrong answer", "failed twice", "retried too often"],
)
def test_one_bad_client_is_not_hidden_by_good_ones(bad: ClientResult, kind: str) -> None:
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(result_of(kind, bad), retries=3)
    if bad.retried == 0 or kind == "legacy":
        with pytest.raises(AssertionError):
            assert_after_a_kill(all_kinds(**{kind: [bad]}))


def test_a_result_without_a_duration_is_rejected() -> None:
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(KindResult("legacy", [GOOD]), retries=0)


def test_a_drain_may_cost_each_client_one_retry_and_no_failure() -> None:
    assert_no_lookup_failed(result_of("legacy", *clients_with_a_retry(15)), retries=1)
    with pytest.raises(AssertionError):
        assert_no_lookup_failed(result_of("legacy", *clients_with_a_failure(1)), retries=1)


@pytest.mark.parametrize(
    "results",
    [
        all_kinds(),
        all_kinds(go_away=clients_with_a_failure(6), legacy=clients_with_a_retry(5)),
        all_kinds(go_away=clients_with_a_failure(11), one_shot=clients_with_a_failure(2)),
    ],
    ids=["nothing", "all connected clients", "one-shot clients too"],
)
def test_a_kill_may_fail_the_lookups_in_flight(results: Mapping[str, KindResult]) -> None:
    assert_after_a_kill(results)


@pytest.mark.parametrize(
    "results",
    [
        all_kinds(go_away=[replace(GOOD, failed=[LOST] * 11)]),
        all_kinds(go_away=clients_with_a_failure(12)),
        all_kinds(go_away=clients_with_a_failure(6), legacy=clients_with_a_retry(6)),
        all_kinds(go_away=clients_with_a_failure(11), one_shot=clients_with_a_failure(3)),
        all_kinds(legacy=clients_with_a_failure(1)),
        all_kinds(legacy=[replace(GOOD, retried=2)]),
        all_kinds(http=clients_with_a_failure(1)),
    ],
    ids=[
        "one client fails as often as there were connections",
        "more clients than were connected",
        "more clients of two kinds than were connected",
        "more than the worker's share",
        "a legacy client fails",
        "a legacy client retries twice",
        "an HTTP client fails",
    ],
)
def test_a_kill_may_fail_no_other_lookups(results: Mapping[str, KindResult]) -> None:
    with pytest.raises(AssertionError):
        assert_after_a_kill(results)


def route_body(**other: object) -> bytes:
    queue = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
    names = {"broker-a": "127.0.4.1:1", "broker-b": "127.0.4.1:2"}
    route = {
        "brokerDatas": [
            {"cluster": "east", "brokerName": name, "brokerAddrs": {"0": address}} for name, address in names.items()
        ],
        "queueDatas": [{"brokerName": name, **queue} for name in names],
    }
    return json.dumps(route | other).encode()


def without_quotes(body: bytes) -> bytes:
    """The dialect for clients that do not ask for standard JSON."""
    return body.replace(b'"0":', b"0:")


@pytest.mark.parametrize("dialect", [bytes, without_quotes])
def test_a_route_must_have_all_brokers_with_their_queues(dialect: Callable[[bytes], bytes]) -> None:
    assert ROUTE.difference(dialect(route_body())) == ""
    assert ROUTE.difference(dialect(route_body(queueDatas=[]))) != ""
    assert ROUTE.difference(dialect(route_body(brokerDatas=[]))) != ""
    assert ROUTE.difference(dialect(route_body()).replace(b"127.0.4.1:2", b"127.0.4.1:3")) != ""


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[]", b"<html>"])
def test_a_body_that_is_no_route_is_rejected(body: bytes) -> None:
    assert ROUTE.difference(body) != ""
