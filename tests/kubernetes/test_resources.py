"""What a pod uses at rest and under load, compared with the requests and limits of the chart's defaults."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest

from benchmarks.load.generator import build
from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.load.pressure import SETTLE_S, generate_lookups
from tests.kubernetes.release import Pod, Release
from tests.kubernetes.verdicts import assert_no_lookup_failed

pytestmark = pytest.mark.cluster

MEASURED_S: Final = 20.0
FULL_LOAD_S: Final = 10.0
REQUIRED_LOOKUPS_PER_SECOND: Final = 20_000
"""By all workers together. A machine that achieves fewer is busy with something else, and the test proves nothing."""
ONE_CORE_M: Final = 1000
"""In millicores. A worker is one process with one thread for lookups, so it cannot use more than one core."""
MIB: Final = 1024 * 1024
UNLIMITED: Final = float("inf")


@dataclass(frozen=True)
class Resources:
    """CPU and memory of one pod: its use, request or limit."""

    millicores: float
    mebibytes: float

    @classmethod
    def of(cls, found: Mapping[str, str]) -> Self:
        return cls(millicores(found["cpu"]) if "cpu" in found else UNLIMITED, mebibytes(found["memory"]))

    def __str__(self) -> str:
        cpu = "no limit" if self.millicores == UNLIMITED else f"{self.millicores:.1f}m"
        return f"{cpu}, {self.mebibytes:.1f} MiB"

    def is_within(self, bound: "Resources") -> bool:
        return self.millicores <= bound.millicores and self.mebibytes <= bound.mebibytes


@dataclass(frozen=True)
class PodResources:
    """Resources of a worker (the highest CPU and memory of any) and of the store."""

    worker: Resources
    store: Resources
    all_workers_m: float = 0.0
    """Millicores of all workers together."""

    def record(self, name: str) -> None:
        figures.record(name, {"worker": str(self.worker), "store": str(self.store)})


@dataclass(frozen=True)
class Defaults:
    requests: PodResources
    limits: PodResources


@pytest.fixture(scope="module")
def defaults(installed: Release) -> Defaults:
    """The defaults; no test of this folder changes resources."""
    worker = _container(installed, f"deployments/{installed.full_name}")
    store = _container(installed, f"statefulsets/{installed.full_name}-store")
    requests, limits = (
        PodResources(Resources.of(worker["resources"][bound]), Resources.of(store["resources"][bound]))
        for bound in ("requests", "limits")
    )
    requests.record("a pod's requests by default")
    limits.record("a pod's limits by default")
    return Defaults(requests, limits)


def _container(release: Release, workload: str) -> Any:
    return release.cluster.get(workload, release.name)["spec"]["template"]["spec"]["containers"][0]


def test_at_rest_a_pod_uses_less_than_it_requests(release: Release, defaults: Defaults) -> None:
    used = measure(release, MEASURED_S)

    used.record("a pod at rest")
    assert_within(used, defaults.requests)


def test_under_the_load_of_a_fleet_a_pod_uses_less_than_it_requests(release: Release, defaults: Defaults) -> None:
    with Fleet(
        release.cluster.addresses.host,
        [release.remoting_address()],
        brokers=30,
        clients_of_each_kind=60,
        lookups_per_second=5,
    ) as fleet:
        time.sleep(5)
        open_window = fleet.open_window()
        used = measure(release, MEASURED_S)
        window = open_window.close()
    rate = sum(window.answered.values()) / window.seconds

    used.record(f"a pod under {rate:.0f} lookups/s on three workers")
    assert_within(used, defaults.requests)
    assert_no_lookup_failed(window)
    release.wait_until_empty()


def test_under_full_load_memory_stays_within_the_request(release: Release, defaults: Defaults) -> None:
    """CPU use may exceed the request, since the chart sets no CPU limit."""
    try:
        generator = build()
    except SystemExit as reason:
        figures.not_run("a pod under full load", str(reason))
    with (
        Fleet(release.cluster.addresses.host, [release.remoting_address()]) as fleet,
        ThreadPoolExecutor(1) as executor,
    ):
        topic = fleet.brokers[0].name
        load = executor.submit(generate_lookups, generator, release.remoting_address(), topic, FULL_LOAD_S)
        time.sleep(SETTLE_S)
        used = measure(release, FULL_LOAD_S)
        result = load.result()
    release.wait_until_empty()

    name = f"a pod under {result.per_second:,.0f} lookups/s on three workers, as many as one core can send"
    used.record(name)
    measured = {
        "three workers together, millicores": used.all_workers_m,
        "the load generator, millicores": result.own_cpu_seconds / result.seconds * 1000,
    }
    figures.record(name, measured)
    assert result.errors == 0, result.first_error
    assert result.per_second > REQUIRED_LOOKUPS_PER_SECOND
    assert_within(used, defaults.limits)
    assert used.worker.millicores <= ONE_CORE_M
    assert used.worker.mebibytes <= defaults.requests.worker.mebibytes
    assert used.store.is_within(defaults.requests.store), "lookups must not load the store"


def assert_within(used: PodResources, bound: PodResources) -> None:
    assert used.worker.is_within(bound.worker), f"{used.worker} is not within {bound.worker}"
    assert used.store.is_within(bound.store), f"{used.store} is not within {bound.store}"


def measure(release: Release, seconds: float) -> PodResources:
    """Average CPU use, and memory at the end."""
    workers, store = release.ready_workers(), release.store()
    start = time.monotonic()
    before = {pod.name: cpu_seconds(pod) for pod in (*workers, store)}
    time.sleep(seconds)
    took = time.monotonic() - start
    used = {
        pod.name: Resources((cpu_seconds(pod) - before[pod.name]) / took * 1000, memory_bytes(pod) / MIB)
        for pod in (*workers, store)
    }
    of_workers = [used[pod.name] for pod in workers]
    most = Resources(max(it.millicores for it in of_workers), max(it.mebibytes for it in of_workers))
    return PodResources(most, used[store.name], sum(it.millicores for it in of_workers))


def cpu_seconds(pod: Pod) -> float:
    """CPU time of all its processes, from this machine's cgroups."""
    if (version_1 := control_group("cpuacct", pod)) is not None:
        return int((version_1 / "cpuacct.usage").read_text()) / 1e9
    group = control_group("", pod)
    assert group
    (line,) = [it for it in (group / "cpu.stat").read_text().splitlines() if it.startswith("usage_usec")]
    return int(line.split()[1]) / 1e6


def memory_bytes(pod: Pod) -> int:
    """Memory without inactive file cache, as `kubectl top` reports it."""
    if (version_1 := control_group("memory", pod)) is not None:
        used = int((version_1 / "memory.usage_in_bytes").read_text())
        return used - memory_stat(version_1, "total_inactive_file")
    group = control_group("", pod)
    assert group
    return int((group / "memory.current").read_text()) - memory_stat(group, "inactive_file")


def control_group(hierarchy: str, pod: Pod) -> Path | None:
    root = Path("/sys/fs/cgroup") / hierarchy
    return next(root.glob(f"rbkube*/{pod.node}/kubepods/**/pod{pod.uid}"), None)


def memory_stat(group: Path, name: str) -> int:
    return next(
        int(line.split()[1]) for line in (group / "memory.stat").read_text().splitlines() if line.startswith(f"{name} ")
    )


def millicores(quantity: str) -> float:
    """Parses `100m` or `2`."""
    return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000


def mebibytes(quantity: str) -> float:
    """Parses `192Mi` or `1Gi`."""
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]
