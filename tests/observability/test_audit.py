"""The audit has one record of every change and refusal, and a flood of them stays small."""

import logging
from typing import Any

import pytest

from routebook.model.change_text import describe_change
from routebook.model.names import ANONYMOUS, Caller
from routebook.observability.audit import LINES_OF_ALL, LINES_PER_ADDRESS, MAX_HELD, MAX_WAITING, PERIOD_S, Audit
from routebook.observability.logs import JsonFormat, TextFormat
from routebook.observability.metrics import Metrics


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(clock: Clock, caplog: pytest.LogCaptureFixture) -> Audit:
    caplog.set_level(logging.INFO, "routebook.audit")
    return Audit(Metrics(), clock)


def peer(address: str = "127.0.0.9", port: int = 40_000) -> Caller:
    return Caller(ANONYMOUS, f"{address}:{port}", worker="w", port="remoting", verb="DELETE_TOPIC_IN_NAMESRV")


def records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if hasattr(record, "outcome")]


def test_a_refusal_has_all_fields(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    audit.refused(peer(), what="topic=orders", reason="ForbiddenError: no")
    record = records(caplog)[0]
    fields = ("outcome", "actor", "source", "port", "verb", "object", "reason")
    assert [record[name] for name in fields] == [
        "refused",
        "anonymous",
        "127.0.0.9:40000",
        "remoting",
        "DELETE_TOPIC_IN_NAMESRV",
        "topic=orders",
        "ForbiddenError: no",
    ]


def test_a_flood_from_one_address_is_summed_up(audit: Audit, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        audit.refused(peer(port=number), what=f"topic=t{number}", reason="no")
    audit.refused(peer("127.0.0.10"), reason="no")
    clock.now += PERIOD_S
    waiting = audit.take_refusals()
    limit = LINES_PER_ADDRESS["refused"]
    assert len(records(caplog)) == limit + 1
    assert caplog.messages[-1] == f"and {1000 - limit} more: refused, from 127.0.0.9"
    assert [(one.count, one.what) for one in waiting] == [(1000, "topic=t0"), (1, "")]


def test_a_flood_from_many_addresses_is_limited_as_well(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20_000):
        audit.refused(peer(f"10.0.{number // 250}.{number % 250}"), reason=f"reason {number}")
    assert len(records(caplog)) == LINES_OF_ALL["refused"]
    waiting = audit.take_refusals()
    assert len(waiting) == MAX_WAITING + 1
    assert sum(one.count for one in waiting) == 20_000
    assert audit.take_refusals() == []


def test_refusals_that_could_not_be_written_wait_in_a_limited_number(audit: Audit) -> None:
    """As in an outage of the store: each second, everything that waits is taken and given back."""
    for second in range(30):
        for number in range(80):
            audit.refused(peer(), what=f"second {second}", reason=f"reason {second % 15}-{number}")
        audit.hold_refusals(audit.take_refusals())
    held = audit.take_refusals()
    assert len(held) == MAX_HELD + 1
    assert sum(one.count for one in held) == 30 * 80
    assert (held[0].count, held[0].what) == (2, "second 0")
    assert held[-1].count == (15 * 80 - MAX_HELD) * 2
    assert "while the store was away" in held[-1].reason
    assert audit.take_refusals() == []


def test_operators_are_never_suppressed(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    operator = Caller("operator", "127.0.0.1:1", worker="w", port="http", verb="put_kv")
    for _ in range(LINES_PER_ADDRESS["done"] + 10):
        audit.done(operator)
    assert len(records(caplog)) == LINES_PER_ADDRESS["done"] + 10


@pytest.mark.parametrize("form", [TextFormat, JsonFormat])
def test_control_characters_of_peers_are_escaped(form: Any, audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    evil = "topic=\x1b[2J\n2026-01-01 info forged\x9b31m\u202eabc"
    audit.refused(peer(), what=evil, reason=evil)
    record = next(record for record in caplog.records if hasattr(record, "outcome"))
    line = form([]).format(record)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter == "\u202e" for letter in line)
    assert "forged" in line


def test_long_values_are_shortened(audit: Audit, caplog: pytest.LogCaptureFixture) -> None:
    audit.refused(peer(), what="x" * 100_000, reason="y" * 100_000)
    assert len(records(caplog)[0]["object"]) < 400
    assert len(audit.take_refusals()[0].reason) < 400


def test_outcomes_are_counted() -> None:
    metrics = Metrics()
    audit = Audit(metrics)
    audit.refused(peer(), reason="no")
    audit.failed(peer(), reason="no")
    audit.done(Caller("worker-1"))
    text = metrics.exposition().decode()
    assert 'routebook_audit_records_total{outcome="refused",port="remoting"} 1.0' in text
    assert 'routebook_audit_records_total{outcome="failed",port="remoting"} 1.0' in text
    assert 'routebook_audit_records_total{outcome="done",port="none"} 1.0' in text


SEAT = {"cluster": "east", "broker": "b", "id": 0, "addr": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "broker-registered", **SEAT, "before": {"addr": None}}, "east/b/0: addr none -> addr 127.0.0.1:1"),
        (
            {"kind": "broker-changed", **SEAT, "timeout_ms": 2, "before": {"timeout_ms": 1}},
            "east/b/0: timeout_ms 1 -> timeout_ms 2",
        ),
        (
            {
                "kind": "broker-changed",
                **SEAT,
                "queues": [{"t": "T", "r": 4, "w": 8, "p": 4, "f": 0}, {"t": "U", "x": 1}],
                "before": {"queues": [{"t": "T", "r": 4, "w": 8, "p": 6, "f": 0}]},
            },
            "east/b/0: 1 topic: T [perm 6, 4 read, 8 write] -> 2 topics: T [perm 4, 4 read, 8 write], U none",
        ),
        ({"kind": "broker-removed", **SEAT, "group_removed": False}, "east/b/0: addr 127.0.0.1:1 -> none"),
        (
            {"kind": "queues-changed", **SEAT, "before": [], "queues": [{"t": "T", "r": 4, "w": 8, "p": 6, "f": 0}]},
            "east/b: none -> 1 topic: T [perm 6, 4 read, 8 write]",
        ),
        (
            {"kind": "write-permission", "broker": "b", "rule": "clear-write", "perm": 2, "touched": 3, "before": [6]},
            "3 topics of b: perm 6 -> without write",
        ),
        (
            {"kind": "kv-deleted", "namespace": "n", "key": "k", "before_sha1": "0123456789abcdef"},
            "key n/k: value with SHA-1 0123456789ab -> none",
        ),
        ({"kind": "settings-changed", "key": "s", "value": "2", "before": None}, "setting s: default -> 2"),
        ({"kind": "refused", "verb": "V", "object": "o", "reason": "r", "count": 2}, "V o: r (2 times)"),
        ({"kind": "something-new", "broker": "b", "actor": "a"}, "kind something-new, broker b"),
        ({"kind": "broker-removed", "broker": "b"}, "kind broker-removed, broker b"),
    ],
)
def test_a_change_is_described_in_one_line(fields: dict[str, Any], text: str) -> None:
    shown = str(describe_change(fields))
    assert shown == text.replace("kind something-new, ", "").replace("kind broker-removed, ", "")
