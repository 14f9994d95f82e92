"""A cluster's nodes as bundles of namespaces of this machine, and the network between them.

The network is a bridge in a namespace of its own, so that no packet filter of this machine (Docker sets some) has a
say in it. This machine and each node have a cable to it, and a cable can be pulled: that is a partition.
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
"""Nodes mount folders of their own over these, so they have to exist."""
CGROUPS: Final = Path("/sys/fs/cgroup")
END_SECONDS: Final = 15.0


class Nodes:
    def __init__(self, state: Path, addresses: Addresses, node_grace: str) -> None:
        self._state = state
        self._addresses = addresses
        self._node_grace = node_grace

    # -- what they share

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

    # -- one of them

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
        # Through a shell that ends: the node is nobody's child, for it may outlive whoever starts it.
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
        """As a machine loses its power. Returns when nothing of it is left."""
        first = self._first_process(number)
        if first is None:
            return
        # First the cable: the kernel would close the connections of dead processes, and tell their peers.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.cut_off(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while self._first_process(number) is not None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {number}, process {first}, does not end")
            time.sleep(0.05)
        # The kernel would take it away when it gets to it, which may be after the node has started again.
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("-n", self._addresses.name, "link", "delete", _cable(number))

    def forget(self, number: int) -> None:
        """All a dead node had on its disk."""
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / self._addresses.name / f"node{number}", itself=False)
        folder = self._state / f"node{number}"
        for name in ("own", "containerd", "sysctl"):
            shutil.rmtree(folder / name, ignore_errors=True)

    def cut_off(self, number: int) -> None:
        """It goes on, and nobody can reach it, nor it anybody."""
        _ip("-n", self._addresses.name, "link", "set", _cable(number), "down")

    def reconnect(self, number: int) -> None:
        _ip("-n", self._addresses.name, "link", "set", _cable(number), "up")

    def socket_of(self, number: int) -> Path:
        """Of its containerd, as it is called from outside."""
        return self._state / f"node{number}" / "own" / "run" / "containerd" / "containerd.sock"

    def processes_of_pod(self, number: int, pod_uid: str) -> list[list[int]]:
        """One list a container; from the machine's own cgroups, so that nobody in the cluster takes part."""
        hierarchy = next(iter(_hierarchies()))
        root = hierarchy / self._addresses.name / f"node{number}" / "kubepods"
        pods = [*root.rglob(f"pod{pod_uid}"), *root.rglob(f"*pod{pod_uid.replace('-', '_')}*")]
        containers = [path for pod in pods for path in sorted(pod.iterdir()) if path.is_dir()]
        return [[int(line) for line in (one / "cgroup.procs").read_text().split()] for one in containers]

    def _first_process(self, number: int) -> int | None:
        try:
            first, started = (self._state / f"node{number}" / "process").read_text().split()
        except FileNotFoundError:
            return None
        # The number may belong to another process by now.
        return int(first) if _started(int(first)) == started else None


def _cable(number: int) -> str:
    """The end of it at the bridge."""
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
    """Number and start together are unique. None: there is no such process, or it is only not buried yet."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _hierarchies() -> Iterator[Path]:
    """Of version 1 there are several; version 2 is one."""
    if (CGROUPS / "cgroup.controllers").exists():
        yield CGROUPS
        return
    for path in sorted(CGROUPS.iterdir()):
        if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists():
            yield path


def _make_cgroup(path: Path) -> None:
    path.mkdir(exist_ok=True)
    # A new group of cpusets of version 1 has no processor, and takes no process.
    if (path / "cpuset.mems").exists() and not (path / "cgroup.controllers").exists():
        for name in ("cpuset.cpus", "cpuset.mems"):
            (path / name).write_text((path.parent / name).read_text())


def _remove_cgroup(path: Path, *, itself: bool = True) -> None:
    deadline = time.monotonic() + END_SECONDS
    while path.exists():
        left = sorted((one for one in path.rglob("*") if one.is_dir()), reverse=True) + ([path] if itself else [])
        if not left:
            return
        for one in left:
            with contextlib.suppress(OSError):
                one.rmdir()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} is still in use")
        time.sleep(0.05)
