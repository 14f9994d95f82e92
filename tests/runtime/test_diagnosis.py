"""Findings that `doctor` derives from a service's status."""

from typing import Any

import pytest

from routebook import __version__
from routebook.runtime.diagnosis import judge_status

WELL: dict[str, Any] = {
    "version": 42,
    "complete": True,
    "stale_seconds": 0.0,
    "leader": {"worker": "w1", "token": 1},
    "expiry_held": False,
    "workers": [{"worker": "w1", "alive": True, "about": {"version": __version__}}],
}


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
    ],
)
def test_each_problem_has_advice(changed: dict[str, Any], subject: str, level: str, advice: str) -> None:
    found = {one.subject: one for one in judge_status("http://h", WELL | changed)}
    assert found[subject].level == level
    assert advice in found[subject].advice


def test_a_dead_worker_of_another_version_is_not_reported() -> None:
    dead = {"worker": "w0", "alive": False, "about": {"version": "0.0.1"}}
    assert [one.level for one in judge_status("http://h", WELL | {"workers": [*WELL["workers"], dead]})] == ["ok"]


def test_without_the_store_the_leader_is_not_reported() -> None:
    found = judge_status("http://h", WELL | {"leader": None, "expiry_held": None})
    assert [one.subject for one in found] == ["service"]
