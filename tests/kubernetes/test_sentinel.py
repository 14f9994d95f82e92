"""An external store found by Sentinel, outside the cluster."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import Cluster
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release
from tests.kubernetes.sentinel import OutsideStore

pytestmark = pytest.mark.cluster


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
    with Fleet(watched.cluster.addresses.host, [watched.remoting_address()]) as fleet:
        time.sleep(6)  # So that the replica has whatever was written.
        before = watched.version()
        stretch = fleet.stretch()
        outside.kill_primary()
        watched.cluster.wait(lambda: outside.primary() != first, "another primary", 30)
        chosen = time.monotonic() - stretch.began
        # Brokers register each five seconds: the first that succeeds among all of them says when writes are back.
        time.sleep(15)
        seen = stretch.end()
        failed = [at for at, _, how in fleet.record.registrations if at > stretch.began and how != "ok"]
        watched.settle()
        time.sleep(30)
        removed = watched.removals_since(before)

    back = max(failed, default=stretch.began) - stretch.began
    figures.tell(
        "primary behind Sentinel killed",
        {"another primary after s": chosen, "last refused write after s": back, **seen.describe()},
    )
    assert seen.failures == []
    assert seen.blanks == []
    assert removed == []
