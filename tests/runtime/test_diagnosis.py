"""Findings that `doctor` derives from a service's status."""

from typing import Any

import pytest

from routebook import __version__
from routebook.runtime.diagnosis import judge_fleet, judge_status

WELL: dict[str, Any] = {
    "version": 42,
    "complete": True,
    "stale_seconds": 0.0,
    "leader": {"worker": "w1", "token": 1},
    "expiry_held": False,
    "workers": [{"worker": "w1", "alive": True, "about": {"version": __version__}}],
}


def worker_at(version: int, digest: str) -> dict[str, Any]:
    return {"worker": f"w-{digest}", "about": {"table": {"version": version, "digest": digest}}}


def group(*health: str, topics: int = 1, writable: int = 1, **fields: Any) -> dict[str, Any]:
    """A group with a master and slaves of this health."""
    members = [{"id": id_, "role": "master" if id_ == 0 else "slave", "health": one} for id_, one in enumerate(health)]
    return {"name": "broker-a", "topics": topics, "writable_topics": writable, "members": members, **fields}


def test_a_healthy_fleet_has_no_findings() -> None:
    assert [one.level for one in judge_fleet([group("ok", "ok")])] == ["ok"]


@pytest.mark.parametrize(
    ("one", "level", "message", "command"),
    [
        (group("silent"), "error", "silent: broker-a/0", "routebook describe broker broker-a/0"),
        (group("ok", "late"), "warning", "late: broker-a/1", "routebook describe broker broker-a/1"),
        (group(*["held"] * 7), "error", "broker-a/4 and 2 more", "routebook describe broker broker-a/0"),
        (
            group(members=[{"id": 1, "role": "slave", "health": "ok"}]),
            "error",
            "without a master",
            "routebook describe group broker-a",
        ),
        (group("ok", writable=0), "warning", "may be written", "routebook write-permission broker-a on"),
    ],
)
def test_each_trouble_of_the_fleet_has_a_command(one: dict[str, Any], level: str, message: str, command: str) -> None:
    (found,) = [finding for finding in judge_fleet([one]) if finding.level != "ok"]
    assert (found.level, found.command) == (level, command)
    assert message in found.message


def test_a_healthy_service_has_no_findings() -> None:
    assert [one.level for one in judge_status("http://h", WELL)] == ["ok"]


@pytest.mark.parametrize(
    ("changed", "subject", "level", "advice"),
    [
        ({"complete": False}, "replica", "error", "store"),
        ({"stale_seconds": 12.0}, "replica", "error", "writes are refused"),
        ({"expiry_held": True}, "expiry", "error", "routebook expiry release"),
        ({"leader": None}, "leader", "warning", "Look again"),
        ({"workers": [{"alive": True, "about": {"version": "9.9.9"}}]}, "versions", "warning", "upgrade"),
        ({"workers": [{"alive": False, "about": {}}]}, "worker", "warning", "lease ended"),
        (
            {"workers": [{"about": {"figures": {"lag_seconds": 60.0, "lag_changes": 900}}}]},
            "worker",
            "error",
            "overloaded",
        ),
        ({"workers": [worker_at(7, "a"), worker_at(7, "b")]}, "digest", "error", "Restart the worker"),
        ({"recovering": True}, "recovery", "error", "register again"),
        ({"store_alarms": {"memory": "full"}}, "store memory", "error", "ends by itself"),
        ({"open_to_all": ["registration"]}, "access", "warning", "docs/security.md"),
    ],
)
def test_each_problem_has_advice(changed: dict[str, Any], subject: str, level: str, advice: str) -> None:
    found = {one.subject: one for one in judge_status("http://h", WELL | changed)}
    assert found[subject].level == level
    assert advice in found[subject].advice
    assert found[subject].command


def test_the_version_of_a_dead_worker_is_not_reported() -> None:
    dead = {"worker": "w0", "alive": False, "about": {"version": "0.0.1"}}
    found = judge_status("http://h", WELL | {"workers": [*WELL["workers"], dead]})
    assert [one.subject for one in found] == ["service", "worker"]


def test_workers_at_different_versions_may_have_different_digests() -> None:
    found = judge_status("http://h", WELL | {"workers": [worker_at(7, "a"), worker_at(8, "b")]})
    assert [one.level for one in found] == ["ok"]


def test_without_the_store_the_leader_is_not_reported() -> None:
    found = judge_status("http://h", WELL | {"leader": None, "expiry_held": None})
    assert [one.subject for one in found] == ["service"]
