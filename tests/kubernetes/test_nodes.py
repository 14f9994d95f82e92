"""A node dies or is cut off from the network. Clients connect through node 1, which stands for a healthy balancer."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import CommandError
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import STORE_NODE, Release
from tests.kubernetes.scenarios import assert_failure_costs_one_retry
from tests.kubernetes.verdicts import assert_no_lookup_failed, assert_writes_resumed

pytestmark = pytest.mark.cluster

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
"""Taint by which an operator declares a node off. Only then does Kubernetes move its pods and their claims."""
WRONG_EXPIRY_S: Final = 40
"""Longer than the brokers' timeout of 30 s plus two scans: a broker that expires wrongly does so within this time."""
STORE_BACK_S: Final = 20.0
"""Limit for writes to resume after the store's node is reachable again."""
STORE_MOVED_S: Final = 90.0
"""Limit after the node was declared off: the control plane moves its pods within 20 s, then the store starts."""


@pytest.fixture
def nodes_restored(release: Release) -> Iterator[None]:
    """Reconnects all nodes after the test."""
    yield
    for number in (2, 3):
        release.cluster.nodes.reconnect(number)
    release.cluster.wait_ready()


@pytest.fixture
def store_node_restored(release: Release) -> Iterator[None]:
    """After the test, replaces the store's node by one with an empty disk, and moves the store back to it."""
    yield
    with contextlib.suppress(CommandError):  # not tainted if the test failed early
        release.cluster.kubectl("taint", "node", STORE_NODE, f"{OUT_OF_SERVICE.partition('=')[0]}-")
    release.cluster.replace_node(int(STORE_NODE.removeprefix("node")))
    release.kubectl("delete", "pod", f"{release.full_name}-store-0", "--ignore-not-found")
    release.cluster.wait(lambda: _is_back(release), "the store's return to its node")
    release.restart()  # spreads the workers over three nodes again


def test_a_dead_node_costs_its_clients_one_retry(release: Release, fleet: Fleet) -> None:
    try:
        assert_node_failure_costs_one_retry("node lost", release, fleet, 2, release.cluster.nodes.kill)
    finally:
        release.cluster.replace_node(2)


@pytest.mark.usefixtures("nodes_restored")
def test_a_disconnected_node_can_come_back(release: Release, fleet: Fleet) -> None:
    """Its worker keeps running without store and peers; no broker may expire because of that."""
    cluster = release.cluster
    before = release.version()
    assert_node_failure_costs_one_retry("node cut off", release, fleet, 2, cluster.nodes.disconnect)
    open_window = fleet.open_window()
    cluster.nodes.reconnect(2)
    cluster.wait_ready()
    release.wait_until_consistent()
    time.sleep(5)
    back = open_window.close()

    figures.record("node comes back", back.describe())
    assert_no_lookup_failed(back)
    assert release.removals_since(before) == []


@pytest.mark.usefixtures("nodes_restored")
def test_lookups_survive_the_disconnected_node_of_the_store(release: Release, writing_fleet: Fleet) -> None:
    """The remaining workers answer every lookup, for longer than the brokers' timeout."""
    cluster = release.cluster
    before = release.version()
    assert_node_failure_costs_one_retry(
        "store's node cut off", release, writing_fleet, 3, cluster.nodes.disconnect, takes_the_store=True
    )
    assert_lookups_continue_without_store(writing_fleet, "without the store's node, its endpoint withdrawn")
    open_window = writing_fleet.open_window()
    cluster.nodes.reconnect(3)
    cluster.wait_ready()
    release.wait_until_consistent()
    time.sleep(WRONG_EXPIRY_S)
    back = open_window.close()

    outage = assert_writes_resumed(back, within_s=STORE_BACK_S)
    figures.record("store's node comes back", {**back.describe(), **outage.describe()})
    assert_no_lookup_failed(back)
    assert release.removals_since(before) == []


@pytest.mark.usefixtures("store_node_restored")
def test_an_operator_can_move_the_store_from_a_dead_node(release: Release, writing_fleet: Fleet) -> None:
    """Kubernetes does not move a pod with a claim by itself: it cannot know that the old node writes no more."""
    cluster, name = release.cluster, "store's node lost"
    before, history = release.version(), release.status()["history"]
    assert_node_failure_costs_one_retry(name, release, writing_fleet, 3, cluster.nodes.kill, takes_the_store=True)
    assert_lookups_continue_without_store(writing_fleet, "without the lost store's node")
    open_window = writing_fleet.open_window()
    cluster.kubectl("taint", "node", STORE_NODE, OUT_OF_SERVICE)
    cluster.wait(lambda: _moved(release), "the store on another node", STORE_MOVED_S)
    moved_s = time.monotonic() - open_window.start
    release.wait_until_consistent()
    time.sleep(WRONG_EXPIRY_S)
    moved = open_window.close()

    outage = assert_writes_resumed(moved, within_s=STORE_MOVED_S)
    measured = {"store ready on another node after s": moved_s, **outage.describe()}
    figures.record("store's node declared out of service", {**moved.describe(), **measured})
    assert_no_lookup_failed(moved)
    assert release.status()["history"] == history, "the store moved without its claim"
    assert release.removals_since(before) == []


def assert_node_failure_costs_one_retry(
    name: str,
    release: Release,
    fleet: Fleet,
    node: int,
    cause_failure: Callable[[int], None],
    *,
    takes_the_store: bool = False,
) -> None:
    (worker,) = [pod for pod in release.ready_workers() if pod.node_number == node]
    assert (release.store().node_number == node) == takes_the_store
    assert_failure_costs_one_retry(
        name, release, fleet, worker, lambda: cause_failure(node), takes_the_store=takes_the_store
    )


def assert_lookups_continue_without_store(fleet: Fleet, name: str) -> None:
    open_window = fleet.open_window()
    time.sleep(20)
    without_store = open_window.close()
    figures.record(name, without_store.describe())
    assert_no_lookup_failed(without_store, store_available=False)
    assert without_store.registered == 0
    assert set(without_store.failed_registrations) == {"1"}


def _moved(release: Release) -> bool:
    stores = [pod for pod in release.pods("store") if pod.node != STORE_NODE]
    return bool(stores) and stores[0].ready


def _is_back(release: Release) -> bool:
    return any(pod.ready and pod.node == STORE_NODE for pod in release.pods("store"))
