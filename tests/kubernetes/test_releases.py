"""Two installations in one cluster, each in a namespace of its own."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster.cluster import Cluster
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import DRAIN, Release
from tests.kubernetes.verdicts import assert_lookups_go_on

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


def test_they_do_not_see_each_other(two: tuple[Release, Release]) -> None:
    left, right = two
    host = left.cluster.addresses.host
    for release in two:
        release.settle(workers=2)

    with (
        Fleet(host, [left.remoting_address()], brokers=2, clients_of_each_kind=1, prefix="of-left") as of_left,
        Fleet(host, [right.remoting_address()], brokers=3, clients_of_each_kind=1, prefix="of-right") as of_right,
    ):
        brokers = [{one["name"] for one in release.http("/v1/brokers").json()["brokers"]} for release in two]
        workers = [{one["worker"].partition(".")[0] for one in release.status()["workers"]} for release in two]
        stretches = [of_left.stretch(), of_right.stretch()]
        time.sleep(8)
        seen = [stretch.end() for stretch in stretches]

    assert brokers == [{"of-left-1", "of-left-2"}, {"of-right-1", "of-right-2", "of-right-3"}]
    assert workers == [{pod.name for pod in release.pods()} for release in two]
    for window in seen:
        assert_lookups_go_on(window)


def test_one_goes_and_the_other_stays(two: tuple[Release, Release]) -> None:
    left, right = two
    right.settle(workers=2)

    left.uninstall()

    assert len(right.ready_workers()) == 2
    assert "Phase:          Succeeded" in right.test()
