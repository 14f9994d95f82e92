"""The checker finds a violation of each invariant, and accepts the same recording without the violation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.invariants import INVARIANTS, REPAIRED_WITHIN_S, check, missing_traffic, prove
from tests.faults.recording import (
    CutOff,
    Death,
    Exchange,
    Incarnation,
    Lease,
    Recording,
    Removal,
    Resources,
    Status,
    lifetimes,
)

TOPICS = ("all", "own")


def registration(at: float, generation: int = 1, broker: str = "b", **values: Any) -> Exchange:
    incarnation = Incarnation("127.0.5.1:1", generation)
    sent = Exchange("registration", "remoting", "w1", 1, broker, at, incarnation=incarnation, topics=TOPICS)
    return replace(sent, **{"answered": at + 0.01, "code": 0, **values})


def lookup(at: float, brokers: dict[str, int] | None = None, **values: Any) -> Exchange:
    found = {name: Incarnation("127.0.5.1:1", generation) for name, generation in (brokers or {}).items()}
    sent = Exchange("lookup", "remoting", "w1", 2, "all", at, answered=at + 0.01, brokers=found)
    return replace(sent, **{"code": 0 if found else 17, **values})


def status(at: float, worker: str = "w1", **values: Any) -> Status:
    return Status(worker, at, at + 0.01, **{"version": 1, "history": "h1", "digest": "d1", **values})


def calm() -> Recording:
    """A broker that registers every second for twenty seconds, and lookups on two workers that always show it."""
    recording = Recording(broker_timeout_s=3.0)
    recording.exchanges = [registration(second) for second in range(20)]
    for tenth in range(5, 190):
        worker = f"w{tenth % 2 + 1}"
        recording.exchanges.append(
            lookup(tenth / 10, {"b": 1}, worker=worker, connection=10 + tenth % 2, subject=TOPICS[tenth % 4 // 2])
        )
    recording.exchanges.append(lookup(19.2, {"b": 1}, port="http", code=200, version=1, history="h1", connection=20))
    recording.statuses = [status(second, worker) for second in range(22) for worker in ("w1", "w2")]
    recording.leases = [Lease(1000 + ms, 7, "w1") for ms in range(0, 20_000, 100)]
    recording.resources = [Resources("w1", "before", 1 << 26, 30), Resources("w1", "after", 1 << 26, 31)]
    recording.workers_at_end = ["w1", "w2"]
    recording.last_change = 0.01
    recording.planned = {"lookup": 186, "registration": 20}
    return recording


def test_a_calm_recording_violates_nothing_and_every_invariant_but_i2_compared_something() -> None:
    results = prove(calm(), required=("I1", "I3", "I4", "I5", "I6", "I7", "I8", "I9"))
    assert [name for name, result in results.items() if result.violations] == []
    assert [name for name, result in results.items() if not result.compared] == ["I2"]


def test_there_are_nine_invariants() -> None:
    assert list(INVARIANTS) == [f"I{number}" for number in range(1, 10)]


def removed_from_one_worker(recording: Recording) -> None:
    recording.exchanges.append(lookup(18.95, {"other": 1}, worker="w2"))


def removed_from_the_only_topic(recording: Recording) -> None:
    recording.exchanges.append(lookup(18.95, worker="w2", subject="own"))


def dead_too_long(recording: Recording) -> None:
    recording.exchanges = [one for one in recording.exchanges if one.kind == "lookup" or one.sent < 10]
    recording.deaths = [Death("b", 10.0, bound_s=5.0)]


def never_looked_up_after_its_death(recording: Recording) -> None:
    recording.exchanges = [one for one in recording.exchanges if one.sent < 10]
    recording.deaths = [Death("b", 10.0, bound_s=5.0)]


def half_visible(recording: Recording) -> None:
    recording.exchanges += [
        lookup(18.95, {"b": 2}, worker="w1", connection=99),
        lookup(18.97, {"b": 1}, worker="w1", connection=99, subject="own"),
    ]


def another_digest(recording: Recording) -> None:
    recording.statuses.append(status(21.5, "w2", digest="d2"))


def no_digest_of_one_worker(recording: Recording) -> None:
    recording.statuses = [one for one in recording.statuses if one.worker == "w1"]


def absent_at_a_worker_that_has_it(recording: Recording) -> None:
    recording.exchanges.append(lookup(18.95))


def absent_at_a_worker_that_never_had_it(recording: Recording) -> None:
    recording.exchanges.append(lookup(18.95, worker="w3", port="http", code=404))


def an_older_version(recording: Recording) -> None:
    for at, version in ((19.3, 9), (19.4, 8)):
        recording.exchanges.append(
            lookup(at, {"b": 1}, port="http", code=200, version=version, history="h1", connection=20)
        )


def an_older_generation(recording: Recording) -> None:
    recording.exchanges += [lookup(18.95, {"b": 2}, connection=99), lookup(18.97, {"b": 1}, connection=99)]


def a_token_of_two_workers(recording: Recording) -> None:
    recording.leases.append(Lease(30_000, 7, "w2"))


def a_token_that_fell(recording: Recording) -> None:
    recording.leases += [Lease(30_000, 9, "w2"), Lease(30_100, 8, "w1")]


def a_removal_by_a_fenced_leader(recording: Recording) -> None:
    recording.removals.append(Removal(2050, 3, "h1", "w2", "c", "127.0.5.2:1", "expired"))


def more_memory(recording: Recording) -> None:
    recording.resources[1] = replace(recording.resources[1], memory_bytes=1 << 27)


def more_files(recording: Recording) -> None:
    recording.resources[1] = replace(recording.resources[1], open_files=100)


def waiting_requests(recording: Recording) -> None:
    recording.resources[1] = replace(recording.resources[1], waiting=1)


def a_lost_registration(recording: Recording) -> None:
    """No answer contains what was acknowledged at 3 s."""
    recording.exchanges.append(registration(3.5, generation=2, connection=3))
    recording.exchanges = [one for one in recording.exchanges if one.kind == "lookup" or one.sent <= 3.5]


VIOLATIONS: list[tuple[str, Callable[[Recording], None]]] = [
    ("I1", removed_from_one_worker),
    ("I1", removed_from_the_only_topic),
    ("I2", dead_too_long),
    ("I2", never_looked_up_after_its_death),
    ("I3", half_visible),
    ("I4", another_digest),
    ("I4", no_digest_of_one_worker),
    ("I5", absent_at_a_worker_that_has_it),
    ("I5", absent_at_a_worker_that_never_had_it),
    ("I6", an_older_version),
    ("I6", an_older_generation),
    ("I7", a_token_of_two_workers),
    ("I7", a_token_that_fell),
    ("I7", a_removal_by_a_fenced_leader),
    ("I8", more_memory),
    ("I8", more_files),
    ("I8", waiting_requests),
    ("I9", a_lost_registration),
]


@pytest.mark.parametrize(("invariant", "violate"), VIOLATIONS, ids=lambda one: getattr(one, "__name__", one))
def test_each_violation_is_found(invariant: str, violate: Callable[[Recording], None]) -> None:
    recording = calm()
    violate(recording)
    assert check(recording)[invariant].violations != []
    with pytest.raises(AssertionError, match=invariant):
        prove(recording)


def test_every_invariant_has_a_violation_that_is_found() -> None:
    assert {invariant for invariant, _ in VIOLATIONS} == set(INVARIANTS)


def test_a_baseline_after_the_last_change_raises_the_version_and_nothing_else() -> None:
    recording = calm()
    recording.statuses.append(status(21.5, "w2", version=25))
    assert check(recording)["I4"].violations == []


def after_a_failover() -> Recording:
    """Generation 2 is acknowledged at 10 s, a new history begins at 10.5 s, and generation 1 is visible again."""
    recording = calm()
    recording.exchanges = [one for one in recording.exchanges if one.kind == "lookup" or one.sent < 10]
    recording.exchanges.append(registration(10, generation=2))
    # It still sends heartbeats, over another connection, but does not register.
    recording.exchanges += [
        replace(registration(second), kind="heartbeat", incarnation=None, topics=()) for second in range(11, 60)
    ]
    recording.statuses = [status(one.sent, one.worker, history="h1" if one.sent < 10.5 else "h2", digest="d")
                          for one in recording.statuses]  # fmt: skip
    return recording


def test_a_loss_by_a_failover_must_be_counted() -> None:
    recording = after_a_failover()
    assert "not counted" in check(recording)["I9"].violations[0]
    recording.gaps_counted = 1
    assert check(recording)["I9"].violations == []


def test_a_loss_by_a_failover_must_be_repaired_in_time() -> None:
    recording = after_a_failover()
    recording.gaps_counted = 1
    recording.exchanges.append(lookup(11 + REPAIRED_WITHIN_S, {"b": 1}))
    assert "not repaired" in check(recording)["I9"].violations[0]


def test_after_a_failover_an_older_generation_is_no_violation_of_i6() -> None:
    recording = after_a_failover()
    recording.exchanges += [lookup(10.2, {"b": 2}, connection=99), lookup(11.7, {"b": 1}, connection=99)]
    assert check(recording)["I6"].violations == []
    recording.statuses = [replace(one, history="h1") for one in recording.statuses]
    assert check(recording)["I6"].violations != []


def test_a_worker_that_is_cut_off_may_lack_what_was_registered_elsewhere() -> None:
    recording = calm()
    a_lost_registration(recording)
    recording.cut_off = [CutOff(worker, 3.0, 20.0) for worker in ("w1", "w2")]
    assert check(recording)["I9"].violations == []
    recording.cut_off = recording.cut_off[:1]
    assert check(recording)["I9"].violations != []


@pytest.mark.parametrize(("after_s", "is_violation"), [(0.3, False), (1.3, True)])
def test_a_broker_that_was_dead_is_known_to_the_other_workers_a_second_after_its_return(
    after_s: float, is_violation: bool
) -> None:
    """Although they have shown it before it died."""
    recording = calm()
    recording.exchanges = [one for one in recording.exchanges if one.sent < 10]
    recording.deaths = [Death("b", 10.0, bound_s=5.0)]
    recording.exchanges += [registration(16.0, generation=2), lookup(16.0 + after_s, worker="w2")]
    violations = check(recording)["I5"].violations
    assert bool(violations) is is_violation, violations


def test_the_removal_of_a_broker_that_fell_silent_is_no_violation_of_i1() -> None:
    recording = calm()
    recording.exchanges = [one for one in recording.exchanges if one.kind == "lookup" or one.sent < 10]
    recording.exchanges.append(lookup(18.95, {"other": 1}))
    assert check(recording)["I1"].violations == []


@pytest.mark.parametrize("kind", ["lookup", "registration"])
def test_a_recording_with_less_than_four_fifths_of_the_planned_traffic_proves_nothing(kind: str) -> None:
    recording = calm()
    assert missing_traffic(recording) == []
    recording.planned[kind] = int(recording.planned[kind] * 1.3)
    assert kind in missing_traffic(recording)[0]
    with pytest.raises(AssertionError, match="planned"):
        prove(recording)
    recording.planned = {}
    with pytest.raises(AssertionError, match="planned"):
        prove(recording)


def test_unanswered_requests_do_not_count_as_traffic() -> None:
    recording = calm()
    recording.exchanges = [
        replace(one, code=None, answered=None) if one.kind == "lookup" else one for one in recording.exchanges
    ]
    assert "lookup" in missing_traffic(recording)[0]


def test_a_broker_lives_from_its_registration_to_its_death_or_a_timeout_after_its_last_heartbeat() -> None:
    recording = Recording(broker_timeout_s=3.0)
    recording.exchanges = [registration(0), registration(1), registration(10), registration(11)]
    recording.deaths = [Death("b", 12.0, bound_s=1.0)]
    first, second = lifetimes(recording, "b")
    assert first == (0.01, 4.0)
    assert second == (10.01, 12.0)


def test_a_saved_recording_is_read_back_with_equal_results(tmp_path: Path) -> None:
    recording = after_a_failover()
    recording.save(tmp_path / "recording.json")
    loaded = Recording.load(tmp_path / "recording.json")
    assert loaded == recording
    assert check(loaded) == check(recording)
