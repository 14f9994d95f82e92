"""Sudden failures of pods: at most the tries in flight fail, and every lookup succeeds when it is retried."""

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
from tests.kubernetes.scenarios import assert_failure_costs_one_retry
from tests.kubernetes.verdicts import assert_no_lookup_failed, assert_writes_resumed

pytestmark = pytest.mark.cluster

LEASE_S: Final = Settings.model_fields["lease_ms"].default / 1000
"""A dead leader's lease ends this long after its last renewal."""
TAKEOVER_S: Final = 2.0
"""Each worker tries to acquire the lease once per second, and reports the leader that it sees."""
POLL_S: Final = 0.1
STORE_BACK_S: Final = 15.0
STORE_AWAY_S: Final = 45
"""Longer than the brokers' timeout of 30 s."""


def test_a_killed_worker_costs_its_clients_one_retry(release: Release, fleet: Fleet) -> None:
    leader = release.leader()
    victim = next(pod for pod in release.ready_workers() if pod != leader)

    assert_failure_costs_one_retry("worker killed", release, fleet, victim, lambda: release.kill_processes(victim))

    assert _current(release, victim).restarts > victim.restarts


def test_another_leader_takes_over_when_the_leader_is_killed(release: Release, fleet: Fleet) -> None:
    token, victim = release.status()["leader"]["token"], release.leader()
    others = [pod for pod in release.ready_workers() if pod != victim]
    with ThreadPoolExecutor(1) as executor:
        next_leader_at = executor.submit(_next_leader_at, release, others, token)

        window = assert_failure_costs_one_retry(
            "leader killed", release, fleet, victim, lambda: release.kill_processes(victim)
        )

        took = next_leader_at.result() - window.start
    figures.record("leader killed", {"another leader after s": took})
    assert took <= LEASE_S + TAKEOVER_S + POLL_S


def test_a_force_deleted_worker_costs_its_clients_one_retry(release: Release, fleet: Fleet) -> None:
    """Nodes short of memory and impatient operators delete pods without a grace period."""
    victim = release.leader()

    assert_failure_costs_one_retry(
        "worker's pod deleted by force",
        release,
        fleet,
        victim,
        lambda: release.kubectl("delete", "pod", victim.name, "--grace-period=0", "--force"),
        has_ended=lambda: release.is_dead(victim),
    )


def test_lookups_survive_a_killed_store(release: Release, writing_fleet: Fleet) -> None:
    before, history = release.version(), release.status()["history"]
    time.sleep(2)
    open_window = writing_fleet.open_window()
    release.kill_processes(release.store())
    time.sleep(STORE_BACK_S)
    release.wait_until_consistent()
    window = open_window.close()

    outage = assert_writes_resumed(window, within_s=STORE_BACK_S)
    figures.record("store killed, restarted by its kubelet", {**window.describe(), **outage.describe()})
    assert_no_lookup_failed(window)
    assert release.status()["history"] == history
    assert release.removals_since(before) == []


def test_no_broker_expires_while_the_store_is_away_for_longer_than_their_timeout(
    release: Release, writing_fleet: Fleet
) -> None:
    before = release.version()
    store = f"statefulset/{release.full_name}-store"
    time.sleep(2)
    open_window = writing_fleet.open_window()
    release.kubectl("scale", store, "--replicas=0")
    release.cluster.wait(lambda: not release.pods("store"), "the store's pod being gone")
    gone = writing_fleet.open_window()
    time.sleep(STORE_AWAY_S)
    away = gone.close()
    ready = release.ready_workers()
    back = writing_fleet.open_window()
    release.kubectl("scale", store, "--replicas=1")
    release.wait_until_consistent()
    time.sleep(STORE_AWAY_S)  # a broker that expires wrongly does so within this time
    returned, window = back.close(), open_window.close()

    outage = assert_writes_resumed(returned, within_s=STORE_BACK_S)
    figures.record(f"store's pod away for {STORE_AWAY_S} s", away.describe())
    figures.record("store's pod comes back", {**returned.describe(), **outage.describe()})
    assert_no_lookup_failed(away, store_available=False)
    assert_no_lookup_failed(window)
    assert len(ready) == 3
    assert away.registered == 0
    assert set(away.failed_registrations) == {"1"}
    assert {write.outcome for write in away.writes} == {"1"}
    assert release.removals_since(before) == []


def _next_leader_at(release: Release, workers: Sequence[Pod], token: int) -> float:
    """Monotonic time at which one of these workers first reports a new leader."""
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
    raise TimeoutError("there is no new leader after 60 s")


def _current(release: Release, victim: Pod) -> Pod:
    return next(pod for pod in release.pods() if pod.uid == victim.uid)
