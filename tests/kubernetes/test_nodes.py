"""A node dies, or nobody can reach it. Clients come in through the first node, as through a balancer that is well."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import CommandError
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import STORE_NODE, Release
from tests.kubernetes.unannounced import strike
from tests.kubernetes.verdicts import assert_lookups_go_on, assert_writes_were_refused_and_are_back

pytestmark = pytest.mark.cluster

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
"""Says that a node is off and stays so: only then are its pods and their claims given to another one."""
EXPIRED_BY_NOW_S: Final = 40
"""Longer than the brokers' timeout of 30 s and two looks of the leader: whoever were expired wrongly would be so."""
STORE_BACK_S: Final = 20.0
"""After its node can be reached again."""
STORE_MOVED_S: Final = 90.0
"""After the operator said that its node is gone: the control plane clears such nodes each 20 s, then the pod starts."""


@pytest.fixture
def whole_again(release: Release) -> Iterator[None]:
    """Whatever a test did to them, the nodes are there for the next one."""
    yield
    for number in (2, 3):
        release.cluster.nodes.reconnect(number)
    release.cluster.wait_ready()


@pytest.fixture
def replaced(release: Release) -> Iterator[None]:
    """The store's node comes back with an empty disk, and the store goes back to it."""
    yield
    with contextlib.suppress(CommandError):  # A test that failed early has not said it.
        release.cluster.kubectl("taint", "node", STORE_NODE, f"{OUT_OF_SERVICE.partition('=')[0]}-")
    release.cluster.replace_node(int(STORE_NODE.removeprefix("node")))
    release.kubectl("delete", "pod", f"{release.full_name}-store-0", "--ignore-not-found")
    release.cluster.wait(lambda: _is_back(release), "the store, back on its node")
    release.restart()  # Spreads the workers over three nodes again.


def test_a_node_dies(release: Release, fleet: Fleet) -> None:
    try:
        lose("node lost", release, fleet, 2, release.cluster.nodes.kill)
    finally:
        release.cluster.replace_node(2)


@pytest.mark.usefixtures("whole_again")
def test_a_node_is_cut_off_and_comes_back(release: Release, fleet: Fleet) -> None:
    """Its worker lives on, without store and without peers: nobody may be expired for it."""
    cluster = release.cluster
    before = release.version()
    lose("node cut off", release, fleet, 2, cluster.nodes.cut_off)
    stretch = fleet.stretch()
    cluster.nodes.reconnect(2)
    cluster.wait_ready()
    release.settle()
    time.sleep(5)
    back = stretch.end()

    figures.tell("node comes back", back.describe())
    assert_lookups_go_on(back)
    assert release.removals_since(before) == []


@pytest.mark.usefixtures("whole_again")
def test_the_store_s_node_is_cut_off(release: Release, writing_fleet: Fleet) -> None:
    """Whoever asks the workers that are left gets every lookup answered, for longer than any broker may be silent."""
    cluster = release.cluster
    before = release.version()
    lose("store's node cut off", release, writing_fleet, 3, cluster.nodes.cut_off, takes_the_store=True)
    assert_lookups_go_on_without_store(writing_fleet, "without the store's node, its endpoint withdrawn")
    stretch = writing_fleet.stretch()
    cluster.nodes.reconnect(3)
    cluster.wait_ready()
    release.settle()
    time.sleep(EXPIRED_BY_NOW_S)
    back = stretch.end()

    outage = assert_writes_were_refused_and_are_back(back, within_s=STORE_BACK_S)
    figures.tell("store's node comes back", {**back.describe(), **outage.describe()})
    assert_lookups_go_on(back)
    assert release.removals_since(before) == []


@pytest.mark.usefixtures("replaced")
def test_the_store_s_node_dies_and_an_operator_moves_the_store(release: Release, writing_fleet: Fleet) -> None:
    """The cluster itself moves nothing that has a claim: it cannot know that the node is off and writes no more."""
    cluster, name = release.cluster, "store's node lost"
    before, history = release.version(), release.status()["history"]
    lose(name, release, writing_fleet, 3, cluster.nodes.kill, takes_the_store=True)
    assert_lookups_go_on_without_store(writing_fleet, "without the lost store's node")
    stretch = writing_fleet.stretch()
    cluster.kubectl("taint", "node", STORE_NODE, OUT_OF_SERVICE)
    cluster.wait(lambda: _moved(release), "the store on another node", STORE_MOVED_S)
    moved_s = time.monotonic() - stretch.began
    release.settle()
    time.sleep(EXPIRED_BY_NOW_S)
    moved = stretch.end()

    outage = assert_writes_were_refused_and_are_back(moved, within_s=STORE_MOVED_S)
    measured = {"store ready on another node after s": moved_s, **outage.describe()}
    figures.tell("store's node declared out of service", {**moved.describe(), **measured})
    assert_lookups_go_on(moved)
    assert release.status()["history"] == history, "the claim did not come along"
    assert release.removals_since(before) == []


def lose(
    name: str, release: Release, fleet: Fleet, node: int, how: Callable[[int], None], *, takes_the_store: bool = False
) -> None:
    (worker,) = [pod for pod in release.ready_workers() if pod.node_number == node]
    assert (release.store().node_number == node) == takes_the_store
    strike(name, release, fleet, worker, lambda: how(node), takes_the_store=takes_the_store)


def assert_lookups_go_on_without_store(fleet: Fleet, name: str) -> None:
    stretch = fleet.stretch()
    time.sleep(20)
    without_store = stretch.end()
    figures.tell(name, without_store.describe())
    assert_lookups_go_on(without_store, store_is_there=False)
    assert without_store.registered == 0
    assert set(without_store.not_registered) == {"1"}


def _moved(release: Release) -> bool:
    stores = [pod for pod in release.pods("store") if pod.node != STORE_NODE]
    return bool(stores) and stores[0].ready


def _is_back(release: Release) -> bool:
    return any(pod.ready and pod.node == STORE_NODE for pod in release.pods("store"))
