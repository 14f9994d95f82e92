"""A real cluster for the tests of this folder. They run only on request (`make cluster-test`), one after the other.

ROUTEBOOK_KUBE_KEEP=1 keeps the cluster running, and the next run uses it. With ROUTEBOOK_KUBE_STRICT=1 tests fail where
they would be skipped.
"""

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes import figures
from tests.kubernetes.cluster import requirements
from tests.kubernetes.cluster.cluster import Cluster, default_state
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import (
    CHART,
    DRAIN,
    NEXT_IMAGE,
    PIPELINE_IMAGE,
    STORE_IMAGE,
    STORE_NODE,
    STORE_PREFERS_ITS_NODE,
    WORKER_IMAGE,
    Release,
    available_images,
    make_next_image,
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the cluster tests unless `-m` names them: they need root, a Docker engine and about ten minutes."""
    if "cluster" in config.getoption("markexpr"):
        return
    deselected = [item for item in items if item.get_closest_marker("cluster")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if "cluster" in terminalreporter.config.getoption("markexpr") and figures.figures_file().exists():
        terminalreporter.section("figures")
        for scenario, reason in figures.scenarios_not_run().items():
            terminalreporter.write_line(f"{figures.NOT_RUN}: {scenario}: {reason}", red=True)
        terminalreporter.write_line(f"in {figures.figures_file()}; python -m tests.kubernetes.figures prints them")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    keep = bool(os.environ.get("ROUTEBOOK_KUBE_KEEP"))
    if not keep:
        figures.reset()
    if reason := requirements.missing() or requirements.engine_missing() or _missing_inputs():
        figures.not_run("everything", reason)
    if keep and (default_state() / "cluster.json").exists():
        running = Cluster.attach()
    else:
        running = Cluster.start(node_grace="40s")
    make_next_image()
    for image in (WORKER_IMAGE, NEXT_IMAGE, STORE_IMAGE):
        running.load(image)
    yield running
    running.detach() if keep else running.stop()


def _missing_inputs() -> str | None:
    if not (CHART / "Chart.yaml").exists():
        return f"there is no chart in {CHART}"
    images = available_images()
    if WORKER_IMAGE not in images:
        return f"there is no image {WORKER_IMAGE}: run make image"
    if STORE_IMAGE not in images:
        return f"there is no image {STORE_IMAGE}: run tests/containers/build_redis_image.sh"
    return None


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Release]:
    """Three workers and their store, for the scenarios with upgrades and failures. Brokers and clients connect through
    the first node.
    """
    release = Release(cluster, "names")
    release.remove()
    seconds = release.install({**DRAIN, **STORE_PREFERS_ITS_NODE})
    assert release.store().node == STORE_NODE
    figures.record("install", {"helm install --wait, store and three workers, s": seconds})
    yield release
    release.remove()


@pytest.fixture
def release(installed: Release) -> Release:
    """The installation, in a healthy state."""
    installed.wait_until_consistent()
    return installed


@pytest.fixture
def fleet(release: Release) -> Iterator[Fleet]:
    """Six brokers and twenty clients outside the cluster."""
    with Fleet(release.cluster.addresses.host, [release.remoting_address()]) as fleet:
        yield fleet
    release.wait_until_empty()


@pytest.fixture
def writing_fleet(release: Release) -> Iterator[Fleet]:
    """The same, plus a broker that writes ten times per second."""
    with Fleet(release.cluster.addresses.host, [release.remoting_address()], writer=True) as fleet:
        yield fleet
    release.wait_until_empty()


@pytest.fixture(scope="session")
def pipeline_image(cluster: Cluster) -> str:
    if PIPELINE_IMAGE not in available_images():
        figures.not_run("nightly job", f"there is no image {PIPELINE_IMAGE}: run make image")
    cluster.load(PIPELINE_IMAGE)
    return PIPELINE_IMAGE
