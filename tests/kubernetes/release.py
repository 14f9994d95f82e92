"""One installation of the chart in a cluster: Helm commands, its pods, and queries of its workers."""

import os
import re
import secrets
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from routebook import __version__
from tests.kubernetes.cluster import requirements
from tests.kubernetes.cluster.cluster import Cluster, has_condition

CHART: Final = Path(__file__).parents[2] / "helm" / "routebook"
OWN_IMAGE: Final = f"routebook:{__version__}"
"""The chart's default image."""
WORKER_IMAGE: Final = os.environ.get("ROUTEBOOK_KUBE_IMAGE") or OWN_IMAGE
NEXT_IMAGE: Final = f"{WORKER_IMAGE}-next"
PIPELINE_IMAGE: Final = f"routebook-pipeline:{__version__}"
STORE_IMAGE: Final = os.environ.get("ROUTEBOOK_TEST_REDIS_IMAGE") or "redis:7-bookworm"

Values = Mapping[str, str | int | bool]

DRAIN: Final[Values] = {"drain.preStopSeconds": 4, "drain.seconds": 8}
"""Shorter than the chart's defaults, which suit RocketMQ's period of 30 s: here clients send three requests per second,
and brokers register every five seconds.
"""
STORE_NODE: Final = "node3"
_PREFERRED: Final = "store.builtin.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
STORE_PREFERS_ITS_NODE: Final[Values] = {
    f"{_PREFERRED}.weight": 100,
    f"{_PREFERRED}.preference.matchExpressions[0].key": "kubernetes.io/hostname",
    f"{_PREFERRED}.preference.matchExpressions[0].operator": "In",
    f"{_PREFERRED}.preference.matchExpressions[0].values[0]": STORE_NODE,
}
"""The store's node, which only the tests about the store's node touch. If it is lost, the store may move."""
_NO_TLS: Final = ssl.create_default_context()
"""Created once, because creating one for each client takes longer than the request."""


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    uid: str
    address: str
    node: str
    ready: bool
    terminating: bool
    restarts: int

    @classmethod
    def of(cls, found: Any) -> "Pod":
        status = found["status"]
        containers = status.get("containerStatuses", [])
        return cls(
            name=found["metadata"]["name"],
            uid=found["metadata"]["uid"],
            address=status.get("podIP", ""),
            node=found["spec"].get("nodeName", ""),
            ready=has_condition(found, "Ready"),
            terminating="deletionTimestamp" in found["metadata"],
            restarts=sum(container["restartCount"] for container in containers),
        )

    @property
    def node_number(self) -> int:
        return int(self.node.removeprefix("node"))


class Release:
    """A release in a namespace of the same name, which enforces the restricted pod security level."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.values: dict[str, str | int | bool] = {
            "store.builtin.image": STORE_IMAGE,
            "service.type": "NodePort",
        }
        if WORKER_IMAGE != OWN_IMAGE:
            self.values["image.repository"], self.values["image.tag"] = WORKER_IMAGE.rsplit(":", 1)

    @property
    def full_name(self) -> str:
        return self.name if "routebook" in self.name else f"{self.name}-routebook"

    # -- helm

    def create_namespace(self) -> None:
        labels = '{"pod-security.kubernetes.io/enforce": restricted, "pod-security.kubernetes.io/warn": restricted}'
        self.cluster.apply(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {self.name}, labels: {labels}}}\n")

    def install(self, values: Values | None = None) -> float:
        """Returns how many seconds `helm install --wait` took."""
        self.create_namespace()
        self.values.update(values or {})
        start = time.monotonic()
        self._helm("install", "--wait", "--timeout", "3m", *self._set(self.values))
        return time.monotonic() - start

    def upgrade(self, values: Values | None = None, *, seconds: int = 300) -> float:
        self.values.update(values or {})
        start = time.monotonic()
        self._helm("upgrade", "--wait", "--timeout", f"{seconds}s", *self._set(self.values), seconds=seconds + 30)
        return time.monotonic() - start

    def rollback(self, revision: int) -> float:
        start = time.monotonic()
        self.cluster.helm("rollback", self.name, str(revision), "--wait", "--timeout", "5m", "-n", self.name)
        return time.monotonic() - start

    def restart(self) -> None:
        """Restarts all workers, one after the other."""
        self.kubectl("rollout", "restart", f"deployment/{self.full_name}")
        self.kubectl("rollout", "status", f"deployment/{self.full_name}", "--timeout=300s")

    def test(self) -> str:
        return self.cluster.helm("test", self.name, "-n", self.name, "--timeout", "2m")

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", self.name, "-n", self.name, "--wait", "--timeout", "3m")

    def remove(self) -> None:
        """Deletes the namespace with everything in it."""
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=true", "--timeout=120s", "--ignore-not-found")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.name, *arguments, stdin=stdin)

    def _helm(self, verb: str, *arguments: str, seconds: float = 240) -> None:
        self.cluster.helm(verb, self.name, str(CHART), "-n", self.name, *arguments, seconds=seconds)

    @staticmethod
    def _set(values: Values) -> list[str]:
        def text(value: str | int | bool) -> str:
            return str(value).lower() if isinstance(value, bool) else str(value).replace(",", "\\,")

        return [part for name, value in values.items() for part in ("--set", f"{name}={text(value)}")]

    # -- pods

    def pods(self, component: str = "worker") -> list[Pod]:
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        found = self.cluster.get(f"pods?labelSelector={labels}", self.name) or []
        return sorted((Pod.of(pod) for pod in found), key=lambda pod: pod.name)

    def ready_workers(self) -> list[Pod]:
        return [pod for pod in self.pods() if pod.ready and not pod.terminating]

    def store(self) -> Pod:
        (pod,) = self.pods("store")
        return pod

    def leader(self) -> Pod:
        leader = self.status()["leader"]
        assert leader, "there is no leader"
        return next(pod for pod in self.pods() if leader["worker"].startswith(f"{pod.name}."))

    def kill_processes(self, pod: Pod) -> None:
        """Sends SIGKILL to the processes of all its containers, directly, without involving the cluster."""
        killed = 0
        for container in self.cluster.nodes.processes_of_pod(pod.node_number, pod.uid):
            for process in container:
                # Spare the pause process: its end would be the end of the pod.
                if Path(f"/proc/{process}/comm").read_text().strip() != "pause":
                    os.kill(process, signal.SIGKILL)
                    killed += 1
        assert killed, f"no process of {pod.name} on {pod.node}"

    def is_dead(self, pod: Pod) -> bool:
        """Whether all its processes have ended."""
        try:
            return not any(self.cluster.nodes.processes_of_pod(pod.node_number, pod.uid))
        except OSError:  # Its control groups are being removed.
            return False

    def wait_until_withdrawn(self, pod: Pod, seconds: float) -> None:
        """Waits for the control plane to withdraw the endpoint; kube-proxy's packet filters follow a moment later."""
        self.cluster.wait(
            lambda: not self.in_service(pod.address), f"the endpoint of {pod.name}", seconds, every_s=0.05
        )

    def in_service(self, address: str) -> bool:
        slices = self.cluster.get("endpointslices", self.name) or []
        mine = [it for it in slices if it["metadata"]["labels"].get("kubernetes.io/service-name") == self.full_name]
        return any(
            address in endpoint["addresses"] and endpoint["conditions"].get("ready")
            for it in mine
            for endpoint in it.get("endpoints") or []
        )

    # -- requests to the workers

    def ports(self) -> dict[str, int]:
        service = self.cluster.get(f"services/{self.full_name}", self.name)
        return {port["name"]: port["nodePort"] for port in service["spec"]["ports"]}

    def remoting_address(self, node: int = 1) -> str:
        return f"{self.cluster.addresses.node(node)}:{self.ports()['remoting']}"

    def http(self, path: str, pod: Pod | None = None, **options: Any) -> httpx.Response:
        """Sends a request through the Service, or directly to one pod."""
        if pod:
            base = f"http://{pod.address}:8080"
        else:
            base = f"http://{self.cluster.addresses.node(1)}:{self.ports()['http']}"
        with httpx.Client(trust_env=False, verify=_NO_TLS, timeout=10) as client:
            return client.request(options.pop("method", "GET"), base + path, **options)

    def status(self, pod: Pod | None = None) -> Any:
        return self.http("/v1/status", pod).raise_for_status().json()

    def version(self) -> int:
        return int(self.status()["version"])

    def metrics(self, pod: Pod) -> str:
        with httpx.Client(trust_env=False, verify=_NO_TLS, timeout=10) as client:
            return client.get(f"http://{pod.address}:8081/metrics").raise_for_status().text

    def connections(self, pod: Pod) -> int:
        """Open connections of brokers and clients."""
        (found,) = re.findall(r'^routebook_connections\{port="remoting"\} (\d+)', self.metrics(pod), re.MULTILINE)
        return int(found)

    def changes_since(self, version: int) -> list[Any]:
        """All changes since a version. Fails if the history has started again or lost entries."""
        assert self.version() >= version, "the history has started again"
        found: list[Any] = []
        while (page := self._changes(version))["changes"]:
            assert page["missing"] is None, page["missing"]
            found += page["changes"]
            version = page["next_since"]
        return found

    def _changes(self, since: int) -> Any:
        return self.http(f"/v1/changes?since={since}&limit=1000").raise_for_status().json()

    def removals_since(self, version: int) -> list[str]:
        """Removed brokers with the cause. In a healthy fleet there are none."""
        removals = [change for change in self.changes_since(version) if change["kind"] == "broker-removed"]
        return [f"{change['broker']}: {change['cause']}" for change in removals]

    def wait_until_empty(self) -> None:
        """Waits until the brokers of the last test are gone."""
        self.cluster.wait(lambda: self.status()["counts"]["brokers"] == 0, "the fleet's brokers being gone", 90)

    def wait_until_consistent(self, workers: int = 3, seconds: float = 180) -> None:
        """Waits until exactly these workers run, all are ready, and all have the same table and a leader."""

        def consistent() -> bool:
            pods = self.pods()
            if len(pods) != workers or not all(pod.ready and not pod.terminating for pod in pods):
                return False
            statuses = [self.status(pod) for pod in pods]
            tables = {(status["version"], status["digest"]) for status in statuses}
            return len(tables) == 1 and bool(statuses[0]["leader"])

        self.cluster.wait(consistent, f"{self.name}: {workers} workers with the same table", seconds)


def available_images() -> set[str]:
    client = requirements.docker()
    if client is None:
        return set()
    output = subprocess.run(
        [client, "images", "--format", "{{.Repository}}:{{.Tag}}"], check=False, capture_output=True, text=True
    ).stdout
    return set(output.split())


def make_next_image() -> None:
    """Makes another image with the same program, to be used as the next release."""
    client = requirements.docker()
    assert client
    name = f"routebook-next-{secrets.token_hex(4)}"
    subprocess.run([client, "create", "--name", name, WORKER_IMAGE], check=True, capture_output=True)
    try:
        change = f'LABEL routebook.test="{name}"'
        subprocess.run([client, "commit", "--change", change, name, NEXT_IMAGE], check=True, capture_output=True)
    finally:
        subprocess.run([client, "rm", name], check=False, capture_output=True)


def lines(output: str) -> Sequence[str]:
    return [line for line in output.splitlines() if line.strip()]
