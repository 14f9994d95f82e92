"""What a pod needs, at rest and under load: from here come the chart's requests and limits."""

import time
from pathlib import Path

import pytest

from tests.kubernetes import figures
from tests.kubernetes.load.fleet import Fleet
from tests.kubernetes.release import Pod, Release

pytestmark = pytest.mark.cluster

MEASURED_S = 20.0
MIB = 1024 * 1024


def test_memory_and_processor_stay_within_what_the_chart_asks_for(release: Release) -> None:
    at_rest = measure(release)
    with Fleet(
        release.cluster.addresses.host,
        [release.remoting_address()],
        brokers=30,
        clients_of_each_kind=60,
        lookups_per_second=5,
    ) as fleet:
        time.sleep(5)
        stretch = fleet.stretch()
        under_load = measure(release)
        seen = stretch.end()
        rate = sum(seen.lookups.values()) / seen.seconds

    for name, figure in (("at rest", at_rest), (f"under {rate:.0f} lookups/s on three workers", under_load)):
        figures.tell(f"a pod {name}", figure)
    asked = release.cluster.get(f"deployments/{release.full_name}", release.name)
    resources = asked["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert under_load["worker: most memory, MiB"] < mebibytes(resources["requests"]["memory"])
    assert seen.failures == []
    release.cluster.wait(lambda: release.status()["counts"]["brokers"] == 0, "the brokers being gone", 90)


def measure(release: Release) -> dict[str, float]:
    workers, store = release.ready_workers(), release.store()
    before = {pod.name: processor_seconds(pod) for pod in (*workers, store)}
    time.sleep(MEASURED_S)
    used = {pod.name: (processor_seconds(pod) - before[pod.name]) / MEASURED_S for pod in (*workers, store)}
    return {
        "worker: most memory, MiB": round(max(memory_bytes(pod) for pod in workers) / MIB, 1),
        "worker: most processor, millicores": round(max(used[pod.name] for pod in workers) * 1000, 1),
        "store: memory, MiB": round(memory_bytes(store) / MIB, 1),
        "store: processor, millicores": round(used[store.name] * 1000, 1),
    }


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


def mebibytes(quantity: str) -> float:
    """Of `192Mi` and `1Gi`."""
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]
