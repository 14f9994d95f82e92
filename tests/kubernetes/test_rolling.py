"""What is announced costs nobody a lookup: clients that follow GO_AWAY never see a failed try, the others have one."""

import pytest

from tests.kubernetes.announced import announce
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import NEXT_IMAGE, WORKER_IMAGE, Release

pytestmark = pytest.mark.cluster


def test_an_upgrade_to_a_new_image(release: Release, fleet: Fleet) -> None:
    tag = NEXT_IMAGE.partition(":")[2]

    announce("upgrade to a new image", release, fleet, lambda: release.upgrade({"image.tag": tag}))

    assert _images(release) == [NEXT_IMAGE]


def test_a_rollback(release: Release, fleet: Fleet) -> None:
    announce("helm rollback", release, fleet, lambda: release.rollback(1))

    assert _images(release) == [WORKER_IMAGE]
    release.values["image.tag"] = WORKER_IMAGE.partition(":")[2]


def test_a_rollout_restart(release: Release, fleet: Fleet) -> None:
    before = {pod.uid for pod in release.pods()}

    announce("rollout restart", release, fleet, release.restart)

    assert not before & {pod.uid for pod in release.pods()}


def test_a_node_is_drained(release: Release, fleet: Fleet) -> None:
    """The second one: the store lives on the third, the API server on the first."""

    def drain() -> None:
        release.cluster.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        assert not [pod for pod in release.pods() if pod.node == "node2"]

    try:
        announce("drain of a node", release, fleet, drain)
    finally:
        release.cluster.kubectl("uncordon", "node2")


def _images(release: Release) -> list[str]:
    return release.kubectl("get", "deployment", release.full_name, "-o", "jsonpath={..image}").split()
