"""What a pod needs, at rest and under load, beside what the chart requests and allows for it by default."""

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
from tests.kubernetes.load.pressure import SETTLE_S, press
from tests.kubernetes.release import Pod, Release
from tests.kubernetes.verdicts import assert_lookups_go_on

pytestmark = pytest.mark.cluster

MEASURED_S: Final = 20.0
PRESSED_S: Final = 10.0
A_LOT: Final = 20_000
"""Lookups a second, of all workers: a machine that manages fewer belongs to others just now, and shows nothing."""
ONE_CORE_M: Final = 1000
"""In millicores: a worker is one process with one thread for lookups, so no more can be of use to it."""
MIB: Final = 1024 * 1024
UNLIMITED: Final = float("inf")


@dataclass(frozen=True)
class Resources:
    """Of one pod: what it used, or what the chart requests or allows."""

    millicores: float
    mebibytes: float

    @classmethod
    def of(cls, said: Mapping[str, str]) -> Self:
        return cls(millicores(said["cpu"]) if "cpu" in said else UNLIMITED, mebibytes(said["memory"]))

    def __str__(self) -> str:
        processor = "no limit" if self.millicores == UNLIMITED else f"{self.millicores:.1f}m"
        return f"{processor}, {self.mebibytes:.1f} MiB"

    def is_within(self, bound: "Resources") -> bool:
        return self.millicores <= bound.millicores and self.mebibytes <= bound.mebibytes


@dataclass(frozen=True)
class Pods:
    """The same of a worker (of the one that used most of each) and of the store."""

    worker: Resources
    store: Resources
    all_workers_m: float = 0.0
    """Millicores of all together."""

    def tell(self, name: str) -> None:
        figures.tell(name, {"worker": str(self.worker), "store": str(self.store)})


@dataclass(frozen=True)
class Defaults:
    requests: Pods
    limits: Pods


@pytest.fixture(scope="module")
def defaults(installed: Release) -> Defaults:
    """Nothing in this proof sets other ones."""
    worker = _container(installed, f"deployments/{installed.full_name}")
    store = _container(installed, f"statefulsets/{installed.full_name}-store")
    requests, limits = (
        Pods(Resources.of(worker["resources"][bound]), Resources.of(store["resources"][bound]))
        for bound in ("requests", "limits")
    )
    requests.tell("a pod's requests by default")
    limits.tell("a pod's limits by default")
    return Defaults(requests, limits)


def _container(release: Release, workload: str) -> Any:
    return release.cluster.get(workload, release.name)["spec"]["template"]["spec"]["containers"][0]


def test_at_rest_a_pod_needs_less_than_it_requests(release: Release, defaults: Defaults) -> None:
    used = measure(release, MEASURED_S)

    used.tell("a pod at rest")
    assert_within(used, defaults.requests)


def test_under_a_fleet_s_lookups_too(release: Release, defaults: Defaults) -> None:
    with Fleet(
        release.cluster.addresses.host,
        [release.remoting_address()],
        brokers=30,
        clients_of_each_kind=60,
        lookups_per_second=5,
    ) as fleet:
        time.sleep(5)
        stretch = fleet.stretch()
        used = measure(release, MEASURED_S)
        seen = stretch.end()
    rate = sum(seen.answered.values()) / seen.seconds

    used.tell(f"a pod under {rate:.0f} lookups/s on three workers")
    assert_within(used, defaults.requests)
    assert_lookups_go_on(seen)
    release.wait_until_empty()


def test_under_pressure_memory_stays_and_processor_is_what_is_used(release: Release, defaults: Defaults) -> None:
    """A worker takes what processor is there (the chart requests some and has no limit) and no more memory."""
    try:
        generator = build()
    except SystemExit as reason:
        figures.not_run("a pod under pressure", str(reason))
    with Fleet(release.cluster.addresses.host, [release.remoting_address()]) as fleet, ThreadPoolExecutor(1) as beside:
        topic = fleet.brokers[0].name
        pressing = beside.submit(press, generator, release.remoting_address(), topic, PRESSED_S)
        time.sleep(SETTLE_S)
        used = measure(release, PRESSED_S)
        pressed = pressing.result()
    release.wait_until_empty()

    name = f"a pod under {pressed.per_second:,.0f} lookups/s on three workers, as many as one core can ask for"
    used.tell(name)
    measured = {
        "three workers together, millicores": used.all_workers_m,
        "the asking process, millicores": pressed.own_cpu_seconds / pressed.seconds * 1000,
    }
    figures.tell(name, measured)
    assert pressed.errors == 0, pressed.first_error
    assert pressed.per_second > A_LOT
    assert_within(used, defaults.limits)
    assert used.worker.millicores <= ONE_CORE_M
    assert used.worker.mebibytes <= defaults.requests.worker.mebibytes
    assert used.store.is_within(defaults.requests.store), "the store has no part in lookups"


def assert_within(used: Pods, bound: Pods) -> None:
    assert used.worker.is_within(bound.worker), f"{used.worker} is not within {bound.worker}"
    assert used.store.is_within(bound.store), f"{used.store} is not within {bound.store}"


def measure(release: Release, seconds: float) -> Pods:
    """Memory at the end, processor on average."""
    workers, store = release.ready_workers(), release.store()
    began = time.monotonic()
    before = {pod.name: processor_seconds(pod) for pod in (*workers, store)}
    time.sleep(seconds)
    took = time.monotonic() - began
    used = {
        pod.name: Resources((processor_seconds(pod) - before[pod.name]) / took * 1000, memory_bytes(pod) / MIB)
        for pod in (*workers, store)
    }
    of_workers = [used[pod.name] for pod in workers]
    most = Resources(max(one.millicores for one in of_workers), max(one.mebibytes for one in of_workers))
    return Pods(most, used[store.name], sum(one.millicores for one in of_workers))


def processor_seconds(pod: Pod) -> float:
    """Of all its processes, by the machine's own accounts."""
    if (version_1 := control_group("cpuacct", pod)) is not None:
        return int((version_1 / "cpuacct.usage").read_text()) / 1e9
    group = control_group("", pod)
    assert group
    (line,) = [one for one in (group / "cpu.stat").read_text().splitlines() if one.startswith("usage_usec")]
    return int(line.split()[1]) / 1e6


def memory_bytes(pod: Pod) -> int:
    """What counts against a limit, without files that the kernel would give back: as `kubectl top` has it."""
    if (version_1 := control_group("memory", pod)) is not None:
        used = int((version_1 / "memory.usage_in_bytes").read_text())
        return used - counted(version_1, "total_inactive_file")
    group = control_group("", pod)
    assert group
    return int((group / "memory.current").read_text()) - counted(group, "inactive_file")


def control_group(hierarchy: str, pod: Pod) -> Path | None:
    root = Path("/sys/fs/cgroup") / hierarchy
    return next(root.glob(f"rbkube*/{pod.node}/kubepods/**/pod{pod.uid}"), None)


def counted(group: Path, name: str) -> int:
    return next(
        int(line.split()[1]) for line in (group / "memory.stat").read_text().splitlines() if line.startswith(f"{name} ")
    )


def millicores(quantity: str) -> float:
    """Of `100m` and `2`."""
    return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000


def mebibytes(quantity: str) -> float:
    """Of `192Mi` and `1Gi`."""
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]
