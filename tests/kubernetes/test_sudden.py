"""What comes unannounced to a pod: at most the lookups under way are lost, and none of a client that tries again."""

import time

import pytest

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Window
from tests.kubernetes.release import Pod, Release

pytestmark = pytest.mark.cluster

STORE_AWAY_S = 45
"""Half as long again as the brokers' timeout of 30 s."""


def test_a_worker_is_killed(release: Release, fleet: Fleet) -> None:
    leader = release.leader()
    victim = next(pod for pod in release.ready_workers() if pod != leader)

    assert_a_retry_is_enough(kill(release, fleet, victim, "worker killed"))


def test_the_leader_is_killed(release: Release, fleet: Fleet) -> None:
    token = release.status()["leader"]["token"]

    killed_at = time.monotonic()

    assert_a_retry_is_enough(kill(release, fleet, release.leader(), "leader killed"))

    def somebody_else_leads() -> bool:
        leader = release.status()["leader"]
        return bool(leader) and leader["token"] > token

    release.cluster.wait(somebody_else_leads, "the next leader", 60)
    figures.tell("leader killed", {"next leader after s, at most": time.monotonic() - killed_at})


def test_a_worker_s_pod_is_deleted_without_grace(release: Release, fleet: Fleet) -> None:
    """As a node does that is short of memory, or an operator in a hurry."""
    before, victim = release.version(), release.leader()
    time.sleep(2)
    stretch = fleet.stretch()
    release.kubectl("delete", "pod", victim.name, "--grace-period=0", "--force")
    release.settle()
    time.sleep(2)
    seen = stretch.end()
    figures.tell("worker's pod deleted by force", seen.describe())
    assert release.removals_since(before) == []
    assert_a_retry_is_enough(seen)


def test_the_store_is_killed(release: Release, fleet: Fleet) -> None:
    before, history = release.version(), release.status()["history"]
    time.sleep(2)
    stretch = fleet.stretch()
    release.kill_processes(release.store())
    time.sleep(15)
    release.settle()
    seen = stretch.end()

    figures.tell("store killed, restarted by its kubelet", seen.describe())
    assert_lookups_go_on(seen)
    assert release.status()["history"] == history
    assert release.removals_since(before) == []


def test_the_store_s_pod_is_away_for_longer_than_any_broker_may_be_silent(release: Release, fleet: Fleet) -> None:
    before = release.version()
    store = f"statefulset/{release.full_name}-store"
    time.sleep(2)
    stretch = fleet.stretch()
    release.kubectl("scale", store, "--replicas=0")
    release.cluster.wait(lambda: not release.pods("store"), "the store's pod being gone")
    gone = fleet.stretch()
    time.sleep(STORE_AWAY_S)
    away = gone.end()
    ready = release.ready_workers()
    release.kubectl("scale", store, "--replicas=1")
    release.settle()
    time.sleep(STORE_AWAY_S)  # Whoever were expired wrongly would be so by now.
    seen = stretch.end()

    figures.tell(f"store's pod away for {STORE_AWAY_S} s", away.describe())
    assert_lookups_go_on(seen)
    assert len(ready) == 3
    assert away.registered == 0
    assert set(away.not_registered) == {"1"}
    assert release.removals_since(before) == []


def kill(release: Release, fleet: Fleet, victim: Pod, name: str) -> Window:
    before = release.version()
    time.sleep(2)
    stretch = fleet.stretch()
    release.kill_processes(victim)
    # Its kubelet starts it again in the same pod: until it is ready, the endpoint is away.
    release.cluster.wait(lambda: _of(release, victim).restarts > victim.restarts, "the kubelet's restart", 60)
    release.settle()
    time.sleep(2)
    seen = stretch.end()
    figures.tell(name, seen.describe())
    assert release.removals_since(before) == []
    return seen


def _of(release: Release, victim: Pod) -> Pod:
    return next(pod for pod in release.pods() if pod.uid == victim.uid)


def assert_a_retry_is_enough(seen: Window) -> None:
    assert seen.lost == []
    assert seen.blanks == []


def assert_lookups_go_on(seen: Window) -> None:
    assert seen.failures == []
    assert seen.lost == []
    assert seen.blanks == []
