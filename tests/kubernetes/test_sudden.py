"""What comes unannounced to a pod: at most the lookups under way are lost, and none of a client that tries again."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
import pytest

from routebook.settings import Settings
from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import Pod, Release
from tests.kubernetes.unannounced import strike
from tests.kubernetes.verdicts import assert_lookups_go_on, assert_writes_were_refused_and_are_back

pytestmark = pytest.mark.cluster

LEASE_S: Final = Settings.model_fields["lease_ms"].default / 1000
"""A dead leader's lease ends so long after its last renewal."""
TAKEN_OVER_S: Final = 2.0
"""Each worker asks for the lease once a second, and tells the others whom it sees leading."""
POLL_S: Final = 0.1
STORE_BACK_S: Final = 15.0
STORE_AWAY_S: Final = 45
"""Half as long again as the brokers' timeout of 30 s."""


def test_a_worker_is_killed(release: Release, fleet: Fleet) -> None:
    leader = release.leader()
    victim = next(pod for pod in release.ready_workers() if pod != leader)

    strike("worker killed", release, fleet, victim, lambda: release.kill_processes(victim))

    assert _of(release, victim).restarts > victim.restarts


def test_the_leader_is_killed(release: Release, fleet: Fleet) -> None:
    token, victim = release.status()["leader"]["token"], release.leader()
    others = [pod for pod in release.ready_workers() if pod != victim]
    with ThreadPoolExecutor(1) as beside:
        followed = beside.submit(_next_leader_at, release, others, token)

        seen = strike("leader killed", release, fleet, victim, lambda: release.kill_processes(victim))

        took = followed.result() - seen.began
    figures.tell("leader killed", {"another leader after s": took})
    assert took <= LEASE_S + TAKEN_OVER_S + POLL_S


def test_a_worker_s_pod_is_deleted_without_grace(release: Release, fleet: Fleet) -> None:
    """As a node does that is short of memory, or an operator in a hurry."""
    victim = release.leader()

    strike(
        "worker's pod deleted by force",
        release,
        fleet,
        victim,
        lambda: release.kubectl("delete", "pod", victim.name, "--grace-period=0", "--force"),
        ends=lambda: release.is_dead(victim),
    )


def test_the_store_is_killed(release: Release, writing_fleet: Fleet) -> None:
    before, history = release.version(), release.status()["history"]
    time.sleep(2)
    stretch = writing_fleet.stretch()
    release.kill_processes(release.store())
    time.sleep(STORE_BACK_S)
    release.settle()
    seen = stretch.end()

    outage = assert_writes_were_refused_and_are_back(seen, within_s=STORE_BACK_S)
    figures.tell("store killed, restarted by its kubelet", {**seen.describe(), **outage.describe()})
    assert_lookups_go_on(seen)
    assert release.status()["history"] == history
    assert release.removals_since(before) == []


def test_the_store_s_pod_is_away_for_longer_than_any_broker_may_be_silent(
    release: Release, writing_fleet: Fleet
) -> None:
    before = release.version()
    store = f"statefulset/{release.full_name}-store"
    time.sleep(2)
    stretch = writing_fleet.stretch()
    release.kubectl("scale", store, "--replicas=0")
    release.cluster.wait(lambda: not release.pods("store"), "the store's pod being gone")
    gone = writing_fleet.stretch()
    time.sleep(STORE_AWAY_S)
    away = gone.end()
    ready = release.ready_workers()
    back = writing_fleet.stretch()
    release.kubectl("scale", store, "--replicas=1")
    release.settle()
    time.sleep(STORE_AWAY_S)  # Whoever were expired wrongly would be so by now.
    returned, seen = back.end(), stretch.end()

    outage = assert_writes_were_refused_and_are_back(returned, within_s=STORE_BACK_S)
    figures.tell(f"store's pod away for {STORE_AWAY_S} s", away.describe())
    figures.tell("store's pod comes back", {**returned.describe(), **outage.describe()})
    assert_lookups_go_on(away, store_is_there=False)
    assert_lookups_go_on(seen)
    assert len(ready) == 3
    assert away.registered == 0
    assert set(away.not_registered) == {"1"}
    assert {one.how for one in away.writes} == {"1"}
    assert release.removals_since(before) == []


def _next_leader_at(release: Release, workers: Sequence[Pod], token: int) -> float:
    """When the first of these says that somebody else leads; monotonic."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for pod in workers:
            try:
                leader = release.status(pod)["leader"]
            except httpx.HTTPError:
                continue
            if leader and leader["token"] > token:
                return time.monotonic()
        time.sleep(POLL_S)
    raise TimeoutError("nobody else leads after 60 s")


def _of(release: Release, victim: Pod) -> Pod:
    return next(pod for pod in release.pods() if pod.uid == victim.uid)
