"""A Kubernetes cluster of plain processes: `with Cluster.start() as cluster: … cluster.kubectl("get", "nodes")`."""

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.kubernetes.cluster import requirements
from tests.kubernetes.cluster.addresses import Addresses, free_addresses
from tests.kubernetes.cluster.certificates import Certificates
from tests.kubernetes.cluster.configuration import write_cluster_files, write_node_files
from tests.kubernetes.cluster.nodes import Nodes

STATE_VARIABLE: Final = "ROUTEBOOK_KUBE_STATE"
READY_SECONDS: Final = 180.0
COMMAND_SECONDS: Final = 300.0
BASE_OBJECTS: Final = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/host-path
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kube-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-proxy"}]
"""


class CommandError(Exception):
    """kubectl or helm failed."""


def default_state() -> Path:
    return Path(os.environ.get(STATE_VARIABLE) or Path(tempfile.gettempdir()) / "routebook-kube")


class Cluster:
    def __init__(self, state: Path, addresses: Addresses, node_grace: str = "40s") -> None:
        """`node_grace` is the silence after which a node counts as lost; Kubernetes' default is 50 s, formerly 40 s."""
        self.state = state
        self.addresses = addresses
        self.nodes = Nodes(state, addresses, node_grace)
        self._node_grace = node_grace
        self._images: list[Path] = []
        self._api: httpx.Client | None = None

    # -- start and stop

    @classmethod
    def start(cls, state: Path | None = None, *, nodes: int = 3, node_grace: str = "40s") -> Self:
        state = state or default_state()
        if state.exists():
            cls.attach(state).stop()
        cluster = cls(state, free_addresses(nodes), node_grace)
        cluster._make_folders()
        try:
            cluster.nodes.prepare()
            for number in cluster.addresses.numbers:
                write_node_files(state, cluster.addresses, number, requirements.cni_folder() or Path())
                cluster.nodes.start(number)
            cluster.wait_ready()
            cluster.apply(BASE_OBJECTS)
            cluster.wait(lambda: cluster.get("serviceaccounts/default"), "the first service account")
        except BaseException:
            cluster.stop(keep_logs=True)
            raise
        return cluster

    @classmethod
    def attach(cls, state: Path | None = None) -> Self:
        """The running cluster of this state folder, started by another process."""
        state = state or default_state()
        saved = json.loads((state / "cluster.json").read_text())
        cluster = cls(state, Addresses(saved["prefix"], saved["nodes"]), saved["node_grace"])
        cluster._images = sorted((state / "images").glob("*.tar"))
        return cluster

    def stop(self, *, keep_logs: bool = False) -> None:
        self.detach()
        for number in reversed(self.addresses.numbers):
            self.nodes.kill(number)
        self.nodes.clean_up()
        if keep_logs:
            logs = Path(tempfile.mkdtemp(prefix="routebook-kube-log."))
            for number in self.addresses.numbers:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copytree(self.state / f"node{number}" / "log", logs / f"node{number}")
            print(f"The cluster did not come up; logs in {logs}")
        shutil.rmtree(self.state)

    def detach(self) -> None:
        """Closes this process' connection; the cluster keeps running."""
        if self._api:
            self._api.close()
        self._api = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make_folders(self) -> None:
        self.state.mkdir(mode=0o755, parents=True)
        for name in ("etcd", "images", "bin"):
            (self.state / name).mkdir()
        claims = self.state / "claims"
        claims.mkdir()
        claims.chmod(0o1777)
        saved = {"prefix": self.addresses.prefix, "nodes": self.addresses.nodes, "node_grace": self._node_grace}
        (self.state / "cluster.json").write_text(json.dumps(saved))
        binaries = requirements.binaries_folder().resolve()
        for name in requirements.PROGRAMS:
            (self.state / "bin" / name).symlink_to(binaries / name)
        Certificates(self.state / "certificates", self.addresses).make()
        write_cluster_files(self.state, self.addresses, binaries / "pause")

    # -- commands

    @property
    def kubeconfig(self) -> Path:
        return self.state / "certificates" / "admin.conf"

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> str:
        return self._run("kubectl", arguments, stdin, seconds)

    def helm(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        return self._run("helm", arguments, None, seconds)

    def apply(self, objects: str) -> None:
        self.kubectl("apply", "-f", "-", stdin=objects)

    def get(self, what: str, namespace: str = "default") -> Any:
        """An object or a list of objects, for instance `pods/name` or `pods`. None if it does not exist."""
        response = self.api.get(f"{_path(namespace, what)}")
        if response.status_code == 404:
            return None
        response.raise_for_status()
        found = response.json()
        return found.get("items", found)

    @property
    def api(self) -> httpx.Client:
        """An HTTP client for the API server; for frequent requests it is cheaper than kubectl."""
        if self._api is None:
            keys = self.state / "certificates"
            self._api = httpx.Client(
                base_url=f"https://{self.addresses.node(1)}:6443",
                verify=_tls_context(keys),
                timeout=10,
                trust_env=False,
            )
        return self._api

    def _run(self, program: str, arguments: Sequence[str], stdin: str | None, seconds: float) -> str:
        environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        environment |= {"KUBECONFIG": str(self.kubeconfig), "HELM_CACHE_HOME": str(self.state / "helm")}
        done = subprocess.run(
            [self.state / "bin" / program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=seconds,
            env=environment,
        )
        if done.returncode:
            raise CommandError(f"{program} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    # -- images

    def load(self, image: str) -> None:
        """Copies an image from the local Docker engine to every node, since there is no registry."""
        archive = self.state / "images" / f"{image.replace('/', '_').replace(':', '_')}.tar"
        client = requirements.docker()
        assert client
        subprocess.run([client, "save", "-o", str(archive), image], check=True, capture_output=True)
        if archive not in self._images:
            self._images.append(archive)
        for number in self.addresses.numbers:
            self._import(number, archive)

    def _import(self, number: int, archive: Path) -> None:
        socket = str(self.nodes.socket_of(number))
        subprocess.run(
            ["ctr", "-a", socket, "-n", "k8s.io", "images", "import", str(archive)], check=True, capture_output=True
        )

    # -- nodes

    def replace_node(self, number: int) -> None:
        """Starts a node again with an empty disk and the loaded images, and waits until it is ready.

        Kills the node first if it still runs because a test failed early.
        """
        self.nodes.kill(number)
        self.nodes.wipe(number)
        write_node_files(self.state, self.addresses, number, requirements.cni_folder() or Path())
        self.nodes.start(number)
        self.wait(self.nodes.socket_of(number).exists, f"containerd of node {number}")
        time.sleep(1)
        for archive in self._images:
            self._import(number, archive)
        self.wait_ready()

    def ready_nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.get("nodes") or [] if _is_ready(node)}

    def wait_ready(self) -> None:
        self.wait(lambda: len(self.ready_nodes()) == self.addresses.nodes, "all nodes being ready")

    def wait(
        self, condition: Callable[[], object], what: str, seconds: float = READY_SECONDS, *, every_s: float = 0.2
    ) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx.HTTPError, CommandError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:.0f} s")
            time.sleep(every_s)


def _tls_context(keys: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
    return context


def _is_ready(node: Any) -> bool:
    return has_condition(node, "Ready")


def has_condition(found: Any, *kinds: str) -> bool:
    """Whether the status of a Kubernetes object has one of these conditions."""
    conditions = found["status"].get("conditions", [])
    return any(condition["type"] in kinds and condition["status"] == "True" for condition in conditions)


def _path(namespace: str, what: str) -> str:
    kind = what.partition("/")[0]
    if kind in {"nodes", "namespaces", "persistentvolumes"}:
        return f"/api/v1/{what}"
    group = {
        "deployments": "apis/apps/v1",
        "statefulsets": "apis/apps/v1",
        "endpointslices": "apis/discovery.k8s.io/v1",
        "jobs": "apis/batch/v1",
        "cronjobs": "apis/batch/v1",
    }.get(kind, "api/v1")
    return f"/{group}/namespaces/{namespace}/{what}"
