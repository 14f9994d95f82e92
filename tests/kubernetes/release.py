"""One installation of the chart in a cluster, and what its workers say."""

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
from tests.kubernetes.cluster.cluster import Cluster

CHART: Final = Path(__file__).parents[2] / "helm" / "routebook"
OWN_IMAGE: Final = f"routebook:{__version__}"
"""What the chart takes by default."""
WORKER_IMAGE: Final = os.environ.get("ROUTEBOOK_KUBE_IMAGE") or OWN_IMAGE
NEXT_IMAGE: Final = f"{WORKER_IMAGE}-next"
PIPELINE_IMAGE: Final = f"routebook-pipeline:{__version__}"
STORE_IMAGE: Final = os.environ.get("ROUTEBOOK_TEST_REDIS_IMAGE") or "redis:7-bookworm"

Values = Mapping[str, str | int | bool]

DRAIN: Final[Values] = {"drain.preStopSeconds": 4, "drain.seconds": 8}
"""Of the proof: its clients speak three times a second and its brokers each five seconds, where RocketMQ's own speak
each thirty, for which the chart's defaults are.
"""
STORE_NODE: Final = "node3"
_PREFERRED: Final = "store.builtin.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
STORE_PREFERS_ITS_NODE: Final[Values] = {
    f"{_PREFERRED}.weight": 100,
    f"{_PREFERRED}.preference.matchExpressions[0].key": "kubernetes.io/hostname",
    f"{_PREFERRED}.preference.matchExpressions[0].operator": "In",
    f"{_PREFERRED}.preference.matchExpressions[0].values[0]": STORE_NODE,
}
"""Where no test without a word about it goes; another one when that is lost."""
_NO_TLS: Final = ssl.create_default_context()
"""Made once: a client would make one for itself each time, which takes longer than to ask."""


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    uid: str
    address: str
    node: str
    ready: bool
    going: bool
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
            ready=any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", [])),
            going="deletionTimestamp" in found["metadata"],
            restarts=sum(one["restartCount"] for one in containers),
        )

    @property
    def node_number(self) -> int:
        return int(self.node.removeprefix("node"))


class Release:
    """Named like its namespace, and in it; the namespace enforces the restricted pod-security level."""

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

    def make_name_space(self) -> None:
        labels = '{"pod-security.kubernetes.io/enforce": restricted, "pod-security.kubernetes.io/warn": restricted}'
        self.cluster.apply(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {self.name}, labels: {labels}}}\n")

    def install(self, values: Values | None = None) -> float:
        """Returns how many seconds `helm install --wait` took."""
        self.make_name_space()
        self.values.update(values or {})
        began = time.monotonic()
        self._helm("install", "--wait", "--timeout", "3m", *self._set(self.values))
        return time.monotonic() - began

    def upgrade(self, values: Values | None = None, *, seconds: int = 300) -> float:
        self.values.update(values or {})
        began = time.monotonic()
        self._helm("upgrade", "--wait", "--timeout", f"{seconds}s", *self._set(self.values), seconds=seconds + 30)
        return time.monotonic() - began

    def rollback(self, revision: int) -> float:
        began = time.monotonic()
        self.cluster.helm("rollback", self.name, str(revision), "--wait", "--timeout", "5m", "-n", self.name)
        return time.monotonic() - began

    def restart(self) -> None:
        """All workers, one after the other."""
        self.kubectl("rollout", "restart", f"deployment/{self.full_name}")
        self.kubectl("rollout", "status", f"deployment/{self.full_name}", "--timeout=300s")

    def test(self) -> str:
        return self.cluster.helm("test", self.name, "-n", self.name, "--timeout", "2m")

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", self.name, "-n", self.name, "--wait", "--timeout", "3m")

    def remove(self) -> None:
        """The release, and its namespace with what is left in it."""
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=true", "--timeout=120s", "--ignore-not-found")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.name, *arguments, given=given)

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
        return sorted((Pod.of(one) for one in found), key=lambda pod: pod.name)

    def ready_workers(self) -> list[Pod]:
        return [pod for pod in self.pods() if pod.ready and not pod.going]

    def store(self) -> Pod:
        (pod,) = self.pods("store")
        return pod

    def leader(self) -> Pod:
        said = self.status()["leader"]
        assert said, "nobody leads"
        return next(pod for pod in self.pods() if said["worker"].startswith(f"{pod.name}."))

    def kill_processes(self, pod: Pod) -> None:
        """SIGKILL to all its containers' processes, from outside: nothing in the cluster is asked or told."""
        found = 0
        for container in self.cluster.nodes.processes_of_pod(pod.node_number, pod.uid):
            for process in container:
                # Not the pod's own first process: that one's end is the pod's.
                if Path(f"/proc/{process}/comm").read_text().strip() != "pause":
                    os.kill(process, signal.SIGKILL)
                    found += 1
        assert found, f"no process of {pod.name} on {pod.node}"

    def is_dead(self, pod: Pod) -> bool:
        """Whether none of its processes is left."""
        try:
            return not any(self.cluster.nodes.processes_of_pod(pod.node_number, pod.uid))
        except OSError:  # Its control groups go while they are looked at.
            return False

    def wait_until_withdrawn(self, pod: Pod, seconds: float) -> None:
        """Until the control plane says so; packet filters hear it a moment later."""
        self.cluster.wait(
            lambda: not self.in_service(pod.address), f"the endpoint of {pod.name}", seconds, every_s=0.05
        )

    def in_service(self, address: str) -> bool:
        slices = self.cluster.get("endpointslices", self.name) or []
        mine = [one for one in slices if one["metadata"]["labels"].get("kubernetes.io/service-name") == self.full_name]
        return any(
            address in endpoint["addresses"] and endpoint["conditions"].get("ready")
            for one in mine
            for endpoint in one.get("endpoints") or []
        )

    # -- what it serves

    def ports(self) -> dict[str, int]:
        service = self.cluster.get(f"services/{self.full_name}", self.name)
        return {port["name"]: port["nodePort"] for port in service["spec"]["ports"]}

    def remoting_address(self, node: int = 1) -> str:
        return f"{self.cluster.addresses.node(node)}:{self.ports()['remoting']}"

    def http(self, path: str, pod: Pod | None = None, **options: Any) -> httpx.Response:
        """Through the Service, or one pod itself."""
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
        """Of brokers and clients."""
        (found,) = re.findall(r'^routebook_connections\{port="remoting"\} (\d+)', self.metrics(pod), re.MULTILINE)
        return int(found)

    def changes_since(self, version: int) -> list[Any]:
        """Each of them, up to a version that is not below this one: who begins anew, or forgets, must not pass."""
        assert self.version() >= version, "the history began anew"
        found: list[Any] = []
        while (page := self._changes(version))["changes"]:
            assert page["missing"] is None, page["missing"]
            found += page["changes"]
            version = page["next_since"]
        return found

    def _changes(self, since: int) -> Any:
        return self.http(f"/v1/changes?since={since}&limit=1000").raise_for_status().json()

    def removals_since(self, version: int) -> list[str]:
        """Who was removed, and why: of a healthy fleet nobody ever is."""
        gone = [one for one in self.changes_since(version) if one["kind"] == "broker-removed"]
        return [f"{one['broker']}: {one['cause']}" for one in gone]

    def wait_until_empty(self) -> None:
        """A test must not find the brokers of the one before."""
        self.cluster.wait(lambda: self.status()["counts"]["brokers"] == 0, "the fleet's brokers being gone", 90)

    def settle(self, workers: int = 3, seconds: float = 180) -> None:
        """All workers there, ready, nobody on the way out, and of one mind."""

        def settled() -> bool:
            pods = self.pods()
            if len(pods) != workers or not all(pod.ready and not pod.going for pod in pods):
                return False
            said = [self.status(pod) for pod in pods]
            return len({(one["version"], one["digest"]) for one in said}) == 1 and bool(said[0]["leader"])

        self.cluster.wait(settled, f"{self.name}: {workers} workers of one mind", seconds)


def available_images() -> set[str]:
    client = requirements.docker()
    if client is None:
        return set()
    said = subprocess.run(
        [client, "images", "--format", "{{.Repository}}:{{.Tag}}"], check=False, capture_output=True, text=True
    )
    return set(said.stdout.split())


def make_next_image() -> None:
    """The same program as another image, as a release is."""
    client = requirements.docker()
    assert client
    name = f"routebook-next-{secrets.token_hex(4)}"
    subprocess.run([client, "create", "--name", name, WORKER_IMAGE], check=True, capture_output=True)
    try:
        change = f'LABEL routebook.proof="{name}"'
        subprocess.run([client, "commit", "--change", change, name, NEXT_IMAGE], check=True, capture_output=True)
    finally:
        subprocess.run([client, "rm", name], check=False, capture_output=True)


def lines(output: str) -> Sequence[str]:
    return [line for line in output.splitlines() if line.strip()]
