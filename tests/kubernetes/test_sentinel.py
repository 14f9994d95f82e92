"""An external store found by Sentinel, outside the cluster."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import Cluster
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release
from tests.kubernetes.sentinel import OutsideStore
from tests.kubernetes.verdicts import assert_lookups_go_on, assert_writes_were_refused_and_are_back

pytestmark = pytest.mark.cluster

BACK_AFTER_THE_CHOICE_S = 3.0


@pytest.fixture(scope="module")
def outside(cluster: Cluster) -> Iterator[OutsideStore]:
    with OutsideStore(cluster.addresses.host) as store:
        yield store


@pytest.fixture(scope="module")
def watched(cluster: Cluster, outside: OutsideStore) -> Iterator[Release]:
    release = Release(cluster, "watched")
    release.remove()
    seconds = release.install({**DRAIN, "store.builtin.enabled": False, "store.external.url": outside.url})
    figures.tell("install", {"helm install --wait, store by Sentinel, s": seconds})
    yield release
    release.remove()


def test_it_installs_and_helm_test_succeeds(watched: Release) -> None:
    watched.settle()

    assert "Phase:          Succeeded" in watched.test()
    assert watched.pods("store") == []


def test_the_primary_dies(watched: Release, outside: OutsideStore) -> None:
    """Lookups do not notice; writes are back when the sentinels have chosen and the workers have asked them."""
    watched.settle()
    first = outside.primary()
    with Fleet(watched.cluster.addresses.host, [watched.remoting_address()], writer=True) as fleet:
        time.sleep(6)  # So that the replica has whatever was written.
        before, history = watched.version(), watched.status()["history"]
        stretch = fleet.stretch()
        outside.kill_primary()
        watched.cluster.wait(lambda: outside.primary() != first, "another primary", 30, every_s=0.05)
        chosen_s = time.monotonic() - stretch.began
        time.sleep(15)
        seen = stretch.end()
        watched.settle()
        time.sleep(30)  # Whoever were expired wrongly would be so by now.
        removed = watched.removals_since(before)

    outage = assert_writes_were_refused_and_are_back(seen, within_s=chosen_s + BACK_AFTER_THE_CHOICE_S)
    measured = {"another primary after s": chosen_s, **outage.describe()}
    figures.tell("primary behind Sentinel killed", {**seen.describe(), **measured})
    assert_lookups_go_on(seen)
    assert watched.status()["history"] == history
    assert removed == []
