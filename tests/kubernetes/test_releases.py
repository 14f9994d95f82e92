"""Two releases in one cluster, each in its own namespace."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster.cluster import Cluster
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release
from tests.kubernetes.verdicts import assert_no_lookup_failed

pytestmark = pytest.mark.cluster


@pytest.fixture
def two(cluster: Cluster) -> Iterator[tuple[Release, Release]]:
    left, right = Release(cluster, "left"), Release(cluster, "right")
    for release in (left, right):
        release.remove()
        release.install({**DRAIN, "replicas": 2})
    yield left, right
    for release in (left, right):
        release.remove()


def test_two_releases_do_not_see_each_other(two: tuple[Release, Release]) -> None:
    left, right = two
    host = left.cluster.addresses.host
    for release in two:
        release.wait_until_consistent(workers=2)

    with (
        Fleet(host, [left.remoting_address()], brokers=2, clients_of_each_kind=1, prefix="of-left") as of_left,
        Fleet(host, [right.remoting_address()], brokers=3, clients_of_each_kind=1, prefix="of-right") as of_right,
    ):
        brokers = [{broker["name"] for broker in release.http("/v1/brokers").json()["brokers"]} for release in two]
        workers = [{worker["worker"].partition(".")[0] for worker in release.status()["workers"]} for release in two]
        open_windows = [of_left.open_window(), of_right.open_window()]
        time.sleep(8)
        windows = [open_window.close() for open_window in open_windows]

    assert brokers == [{"of-left-1", "of-left-2"}, {"of-right-1", "of-right-2", "of-right-3"}]
    assert workers == [{pod.name for pod in release.pods()} for release in two]
    for window in windows:
        assert_no_lookup_failed(window)


def test_removing_one_release_does_not_affect_the_other(two: tuple[Release, Release]) -> None:
    left, right = two
    right.wait_until_consistent(workers=2)

    left.uninstall()

    assert len(right.ready_workers()) == 2
    assert "Phase:          Succeeded" in right.test()
