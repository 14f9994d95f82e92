"""A node dies, or nobody can reach it. Clients come in through the first node, as through a balancer that is well."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.record import Window
from tests.kubernetes.release import Release

pytestmark = pytest.mark.cluster

WITHDRAWN_WITHIN_S = 90
"""The control plane takes a node for lost after 40 s of silence, then withdraws the endpoints of its pods."""


@pytest.fixture
def whole_again(release: Release) -> Iterator[None]:
    """Whatever a test did to them, the nodes are there for the next one."""
    yield
    for number in (2, 3):
        release.cluster.nodes.reconnect(number)
    release.cluster.wait_ready()


def test_a_node_dies(release: Release, fleet: Fleet) -> None:
    nodes = release.cluster.nodes
    try:
        seen = lose(release, fleet, 2, nodes.kill, "node lost")
    finally:
        release.cluster.replace_node(2)
    release.settle()
    assert_a_retry_is_enough(seen)


@pytest.mark.usefixtures("whole_again")
def test_a_node_is_cut_off_and_comes_back(release: Release, fleet: Fleet) -> None:
    """Its worker lives on, without store and without peers: nobody may be expired for it."""
    cluster = release.cluster
    before = release.version()
    seen = lose(release, fleet, 2, cluster.nodes.cut_off, "node cut off")
    stretch = fleet.stretch()
    cluster.nodes.reconnect(2)
    cluster.wait_ready()
    release.settle()
    time.sleep(5)
    back = stretch.end()

    figures.tell("node comes back", back.describe())
    assert_a_retry_is_enough(seen)
    assert_a_retry_is_enough(back)
    assert release.removals_since(before) == []


@pytest.mark.usefixtures("whole_again")
def test_the_store_s_node_is_cut_off(release: Release, fleet: Fleet) -> None:
    """Whoever asks the workers that are left gets every lookup answered, for longer than any broker may be silent."""
    cluster = release.cluster
    before = release.version()
    seen = lose(release, fleet, 3, cluster.nodes.cut_off, "store's node cut off")
    stretch = fleet.stretch()
    time.sleep(20)
    without_store = stretch.end()
    cluster.nodes.reconnect(3)
    cluster.wait_ready()
    release.settle()
    time.sleep(40)  # Whoever were expired wrongly would be so by now.

    figures.tell("without the store's node, its endpoint withdrawn", without_store.describe())
    assert_a_retry_is_enough(seen)
    assert without_store.failures == []
    assert without_store.blanks == []
    assert without_store.registered == 0
    assert set(without_store.not_registered) == {"1"}
    assert release.removals_since(before) == []


def lose(release: Release, fleet: Fleet, node: int, how: Callable[[int], None], name: str) -> Window:
    """Until the worker's endpoint is withdrawn, and a little longer."""
    before = release.version()
    (worker,) = [pod for pod in release.ready_workers() if pod.node_number == node]
    time.sleep(2)
    stretch = fleet.stretch()
    how(node)
    release.cluster.wait(lambda: not release.in_service(worker.address), "the endpoint", WITHDRAWN_WITHIN_S)
    withdrawn = time.monotonic() - stretch.began
    # A try that began just before may still take its three seconds.
    time.sleep(7)
    after = fleet.stretch()
    time.sleep(5)
    seen = stretch.end()
    figures.tell(name, {"endpoint withdrawn after s": withdrawn, **seen.describe()})
    assert after.end().failures == [], "tries fail although the endpoint is withdrawn"
    if release.store().node_number != node:
        assert release.removals_since(before) == []
    return seen


def assert_a_retry_is_enough(seen: Window) -> None:
    assert seen.lost == []
    assert seen.blanks == []
