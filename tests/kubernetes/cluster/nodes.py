"""A cluster's nodes, each a set of namespaces on this machine, and the network between them.

The network is a bridge in its own network namespace, so that this machine's packet filters (Docker sets some) do not
affect it. This machine and each node are connected to it by a veth pair ("cable"); taking one down is a partition.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kubernetes.cluster.addresses import Addresses
from tests.kubernetes.cluster.requirements import SYSTEM_PATH

NODE_PROGRAM: Final = Path(__file__).parent / "node.sh"
SHARED_PATHS: Final = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/run/containerd",
    "/run/netns",
    "/var/log/pods",
    "/var/log/containers",
    "/tmp/hostpath_pv",
)
"""Mount points for the nodes' own folders; they must exist."""
CGROUPS: Final = Path("/sys/fs/cgroup")
END_SECONDS: Final = 15.0


class Nodes:
    def __init__(self, state: Path, addresses: Addresses, node_grace: str) -> None:
        self._state = state
        self._addresses = addresses
        self._node_grace = node_grace

    # -- shared by all nodes

    def prepare(self) -> None:
        for path in SHARED_PATHS:
            Path(path).mkdir(parents=True, exist_ok=True)
        for hierarchy in _hierarchies():
            for name in (self._addresses.name, *(f"{self._addresses.name}/node{n}" for n in self._addresses.numbers)):
                _make_cgroup(hierarchy / name)
        switch, host = self._addresses.name, self._addresses.host
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        _ip("link", "add", switch, "type", "veth", "peer", "name", "host", "netns", switch)
        _ip("-n", switch, "link", "set", "host", "master", "bridge", "up")
        _ip("address", "add", f"{host}/24", "dev", switch)
        _ip("link", "set", switch, "up")
        for number in self._addresses.numbers:
            _ip("route", "add", self._addresses.pods(number), "via", self._addresses.node(number))
        _ip("route", "add", self._addresses.services, "via", self._addresses.node(1))

    def clean_up(self) -> None:
        switch = self._addresses.name
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", switch)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", switch)
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / switch)

    # -- one node

    def start(self, number: int) -> None:
        addresses, folder = self._addresses, self._state / f"node{number}"
        others = [n for n in addresses.numbers if n != number]
        environment = {
            "PATH": SYSTEM_PATH,
            "STATE": str(self._state),
            "NUMBER": str(number),
            "ADDRESS": addresses.node(number),
            "ROUTES": " ".join(f"{addresses.pods(n)} {addresses.node(n)}" for n in others),
            "SERVICES": addresses.services,
            "NODE_GRACE": self._node_grace,
        }
        unshare = ("unshare", "--mount", "--pid", "--net", "--uts", "--mount-proc", "--kill-child")
        node = [*unshare, "--propagation", "private", "--", "bash", str(NODE_PROGRAM)]
        # Started through a shell that exits, so that the node is not a child of this process and can outlive it.
        in_background = 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 & echo $!'
        outer = subprocess.run(
            ["sh", "-c", in_background, "sh", str(folder / "log" / "node.log"), *node],
            check=True,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        first = _child_of(int(outer.stdout))
        (folder / "process").write_text(f"{first} {_started(first)}")
        switch, cable = addresses.name, _cable(number)
        _ip("-n", switch, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(first))
        _ip("-n", switch, "link", "set", cable, "master", "bridge", "up")

    def kill(self, number: int) -> None:
        """Kills a node like a power failure. Returns when all its processes have ended."""
        first = self._first_process(number)
        if first is None:
            return
        # Disconnect it first; otherwise the kernel would close the dead processes' connections and notify their peers.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.disconnect(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while self._first_process(number) is not None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {number}, process {first}, does not end")
            time.sleep(0.05)
        # The kernel would remove it too, but possibly only after the node has started again.
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("-n", self._addresses.name, "link", "delete", _cable(number))

    def wipe(self, number: int) -> None:
        """Deletes everything that a dead node had on its disk."""
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / self._addresses.name / f"node{number}", keep=True)
        folder = self._state / f"node{number}"
        for name in ("own", "containerd", "sysctl"):
            shutil.rmtree(folder / name, ignore_errors=True)

    def disconnect(self, number: int) -> None:
        """Disconnects a node from the network; its processes keep running."""
        _ip("-n", self._addresses.name, "link", "set", _cable(number), "down")

    def reconnect(self, number: int) -> None:
        _ip("-n", self._addresses.name, "link", "set", _cable(number), "up")

    def socket_of(self, number: int) -> Path:
        """Path of its containerd's socket, seen from outside the node."""
        return self._state / f"node{number}" / "own" / "run" / "containerd" / "containerd.sock"

    def processes_of_pod(self, number: int, pod_uid: str) -> list[list[int]]:
        """Process ids, one list per container, read from this machine's cgroups without involving the cluster."""
        hierarchy = next(iter(_hierarchies()))
        root = hierarchy / self._addresses.name / f"node{number}" / "kubepods"
        pods = [*root.rglob(f"pod{pod_uid}"), *root.rglob(f"*pod{pod_uid.replace('-', '_')}*")]
        containers = [path for pod in pods for path in sorted(pod.iterdir()) if path.is_dir()]
        return [[int(line) for line in (folder / "cgroup.procs").read_text().split()] for folder in containers]

    def _first_process(self, number: int) -> int | None:
        try:
            first, started = (self._state / f"node{number}" / "process").read_text().split()
        except FileNotFoundError:
            return None
        # The process id may belong to another process by now.
        return int(first) if _started(int(first)) == started else None


def _cable(number: int) -> str:
    """Name of the cable's end at the bridge."""
    return f"node{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _child_of(process: int) -> int:
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        if children := Path(f"/proc/{process}/task/{process}/children").read_text().split():
            return int(children[0])
        time.sleep(0.02)
    raise RuntimeError("a node did not start")


def _started(process: int) -> str | None:
    """Start time of a process; id and start time together are unique. None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _hierarchies() -> Iterator[Path]:
    """The cgroup hierarchies: several with version 1, one with version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS
        return
    for path in sorted(CGROUPS.iterdir()):
        if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists():
            yield path


def _make_cgroup(path: Path) -> None:
    path.mkdir(exist_ok=True)
    # With version 1, a new cpuset group has no CPUs and accepts no process.
    if (path / "cpuset.mems").exists() and not (path / "cgroup.controllers").exists():
        for name in ("cpuset.cpus", "cpuset.mems"):
            (path / name).write_text((path.parent / name).read_text())


def _remove_cgroup(path: Path, *, keep: bool = False) -> None:
    """Removes the groups below `path`, and `path` itself unless `keep` is set."""
    deadline = time.monotonic() + END_SECONDS
    while path.exists():
        groups = sorted((group for group in path.rglob("*") if group.is_dir()), reverse=True)
        groups += [] if keep else [path]
        if not groups:
            return
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} is still in use")
        time.sleep(0.05)
