"""What each scenario must show. Every verdict first checks that enough lookups were answered: without lookups, the
absence of failures proves nothing.
"""

from collections.abc import Mapping
from typing import Final

from tests.balancing.results import KindResult

ANSWER_PERIOD_S: Final = 0.1
"""A client must be answered at least this often. It asks 20 ms after each answer, so normally 40 times per second."""


def assert_enough_were_answered(result: KindResult) -> None:
    """Every client received complete routes only, often enough. Failed lookups are not judged here."""
    assert result.wrong == []
    expected = result.seconds / ANSWER_PERIOD_S
    assert result.seconds > 0
    few = [client.answered for client in result.clients if client.answered < expected]
    assert not few, f"{result.kind}: clients had only {few} answers in {result.seconds:.1f} s, expected {expected:.0f}"


def assert_no_lookup_failed(result: KindResult, *, retries: int) -> None:
    """`retries` is the number of workers that ended: a legacy client may repeat one lookup for each of them."""
    assert_enough_were_answered(result)
    assert not result.failed, f"{result.kind}: {len(result.failed)} lookups failed: {result.failed[:5]}"
    most = result.most_retries_of_one
    assert most <= retries, f"{result.kind}: a client retried {most} lookups, allowed are {retries}"


def assert_only_lookups_in_flight_failed(
    results: Mapping[str, KindResult], *, connected: int, worker_share: int
) -> None:
    """A killed worker costs each client connected to it at most the lookup in flight.

    GO_AWAY clients lose that lookup, legacy clients repeat it; together they are at most the `connected` clients.
    One-shot clients connect for each lookup, so any of them may have been connected, but all together lose at most as
    many lookups as the worker had connections, its `worker_share`.
    """
    for kind in ("legacy", "http"):
        assert_no_lookup_failed(results[kind], retries=1)
    for kind in ("go_away", "one_shot"):
        assert_enough_were_answered(results[kind])
        most = results[kind].most_failures_of_one
        assert most <= 1, f"{kind}: a client failed {most} times"
    affected = len(results["go_away"].failed) + results["legacy"].retried
    assert affected <= connected, f"{affected} lookups failed or were retried; {connected} clients were connected"
    assert affected + len(results["one_shot"].failed) <= worker_share
