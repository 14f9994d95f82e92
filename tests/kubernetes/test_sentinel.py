"""An external store behind Sentinel, outside the cluster."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster.cluster import Cluster
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release
from tests.kubernetes.sentinel import SentinelStore
from tests.kubernetes.verdicts import assert_no_lookup_failed, assert_writes_resumed

pytestmark = pytest.mark.cluster

RESUMED_AFTER_FAILOVER_S = 3.0


@pytest.fixture(scope="module")
def sentinel_store(cluster: Cluster) -> Iterator[SentinelStore]:
    with SentinelStore(cluster.addresses.host) as store:
        yield store


@pytest.fixture(scope="module")
def sentinel_release(cluster: Cluster, sentinel_store: SentinelStore) -> Iterator[Release]:
    release = Release(cluster, "sentinel")
    release.remove()
    seconds = release.install({**DRAIN, "store.builtin.enabled": False, "store.external.url": sentinel_store.url})
    figures.record("install", {"helm install --wait, store by Sentinel, s": seconds})
    yield release
    release.remove()


def test_helm_test_succeeds_with_a_store_behind_sentinel(sentinel_release: Release) -> None:
    sentinel_release.wait_until_consistent()

    assert "Phase:          Succeeded" in sentinel_release.test()
    assert sentinel_release.pods("store") == []


def test_writes_resume_after_the_primary_dies(sentinel_release: Release, sentinel_store: SentinelStore) -> None:
    """Lookups are not affected. Writes resume after the failover, when the workers have asked the sentinels."""
    sentinel_release.wait_until_consistent()
    first = sentinel_store.primary()
    with Fleet(sentinel_release.cluster.addresses.host, [sentinel_release.remoting_address()], writer=True) as fleet:
        time.sleep(6)  # until the replica has all writes
        before, history = sentinel_release.version(), sentinel_release.status()["history"]
        open_window = fleet.open_window()
        sentinel_store.kill_primary()
        sentinel_release.cluster.wait(lambda: sentinel_store.primary() != first, "another primary", 30, every_s=0.05)
        failover_s = time.monotonic() - open_window.start
        time.sleep(15)
        window = open_window.close()
        sentinel_release.wait_until_consistent()
        time.sleep(30)  # a broker that expires wrongly does so within this time
        removed = sentinel_release.removals_since(before)

    outage = assert_writes_resumed(window, within_s=failover_s + RESUMED_AFTER_FAILOVER_S)
    measured = {"another primary after s": failover_s, **outage.describe()}
    figures.record("primary behind Sentinel killed", {**window.describe(), **measured})
    assert_no_lookup_failed(window)
    assert sentinel_release.status()["history"] == history
    assert removed == []
