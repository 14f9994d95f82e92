"""A real cluster for the tests of this folder. They run only when asked for (`make cluster-test`), one after the other.

ROUTEBOOK_KUBE_KEEP=1 leaves the cluster there for the next run, which then takes it over. ROUTEBOOK_KUBE_STRICT=1: what
would be skipped fails.
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
    """Deselected unless `-m` speaks of them: they need root, a Docker engine and some ten minutes."""
    if "cluster" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("cluster")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if "cluster" in terminalreporter.config.getoption("markexpr") and figures.figures_file().exists():
        terminalreporter.section("figures")
        for scenario, reason in figures.left_out().items():
            terminalreporter.write_line(f"{figures.NOT_RUN}: {scenario}: {reason}", red=True)
        terminalreporter.write_line(f"kept in {figures.figures_file()}; python -m tests.kubernetes.figures prints them")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    keep = bool(os.environ.get("ROUTEBOOK_KUBE_KEEP"))
    if not keep:
        figures.begin()
    if reason := requirements.missing() or requirements.engine_missing() or _lacks():
        figures.not_run("everything", reason)
    if keep and (default_state() / "cluster.json").exists():
        running = Cluster.found()
    else:
        running = Cluster.start(node_grace="40s")
    make_next_image()
    for image in (WORKER_IMAGE, NEXT_IMAGE, STORE_IMAGE):
        running.load(image)
    yield running
    running.leave() if keep else running.end()


def _lacks() -> str | None:
    if not (CHART / "Chart.yaml").exists():
        return f"there is no chart in {CHART}"
    have = available_images()
    if WORKER_IMAGE not in have:
        return f"there is no image {WORKER_IMAGE}: run make image"
    if STORE_IMAGE not in have:
        return f"there is no image {STORE_IMAGE}: run tests/containers/build_redis_image.sh"
    return None


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[Release]:
    """Three workers and their store: what the scenarios of upgrades and faults run on, one after the other. Brokers and
    clients come in through the first node.
    """
    release = Release(cluster, "names")
    release.remove()
    seconds = release.install({**DRAIN, **STORE_PREFERS_ITS_NODE})
    assert release.store().node == STORE_NODE
    figures.tell("install", {"helm install --wait, store and three workers, s": seconds})
    yield release
    release.remove()


@pytest.fixture
def release(installed: Release) -> Release:
    """The installation, healthy."""
    installed.settle()
    return installed


@pytest.fixture
def fleet(release: Release) -> Iterator[Fleet]:
    """Six brokers and twenty clients outside the cluster."""
    with Fleet(release.cluster.addresses.host, [release.remoting_address()]) as fleet:
        yield fleet
    release.wait_until_empty()


@pytest.fixture
def writing_fleet(release: Release) -> Iterator[Fleet]:
    """The same, and one that writes ten times a second."""
    with Fleet(release.cluster.addresses.host, [release.remoting_address()], writer=True) as fleet:
        yield fleet
    release.wait_until_empty()


@pytest.fixture(scope="session")
def pipeline_image(cluster: Cluster) -> str:
    if PIPELINE_IMAGE not in available_images():
        figures.not_run("nightly job", f"there is no image {PIPELINE_IMAGE}: run make image")
    cluster.load(PIPELINE_IMAGE)
    return PIPELINE_IMAGE
