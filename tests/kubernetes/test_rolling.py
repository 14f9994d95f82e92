"""Planned changes: no lookup is lost, GO_AWAY clients see no failed try, and legacy clients at most one."""

import pytest

from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import NEXT_IMAGE, WORKER_IMAGE, Release
from tests.kubernetes.scenarios import assert_change_is_unnoticed

pytestmark = pytest.mark.cluster


def test_an_upgrade_to_a_new_image_is_unnoticed(release: Release, fleet: Fleet) -> None:
    tag = NEXT_IMAGE.partition(":")[2]

    assert_change_is_unnoticed("upgrade to a new image", release, fleet, lambda: release.upgrade({"image.tag": tag}))

    assert _images(release) == [NEXT_IMAGE]


def test_a_rollback_is_unnoticed(release: Release, fleet: Fleet) -> None:
    assert_change_is_unnoticed("helm rollback", release, fleet, lambda: release.rollback(1))

    assert _images(release) == [WORKER_IMAGE]
    release.values["image.tag"] = WORKER_IMAGE.partition(":")[2]


def test_a_rollout_restart_is_unnoticed(release: Release, fleet: Fleet) -> None:
    before = {pod.uid for pod in release.pods()}

    assert_change_is_unnoticed("rollout restart", release, fleet, release.restart)

    assert not before & {pod.uid for pod in release.pods()}


def test_the_drain_of_a_node_is_unnoticed(release: Release, fleet: Fleet) -> None:
    """Drains node 2, because the store runs on node 3 and the API server on node 1."""

    def drain() -> None:
        release.cluster.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        assert not [pod for pod in release.pods() if pod.node == "node2"]

    try:
        assert_change_is_unnoticed("drain of a node", release, fleet, drain)
    finally:
        release.cluster.kubectl("uncordon", "node2")


def _images(release: Release) -> list[str]:
    return release.kubectl("get", "deployment", release.full_name, "-o", "jsonpath={..image}").split()
