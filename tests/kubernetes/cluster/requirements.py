"""What this machine needs to run a cluster, and where to find it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

BINARIES_VARIABLE: Final = "ROUTEBOOK_KUBE_BIN"
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
    "helm",
    "coredns",
    "pause",
)
PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
    "unshare": "util-linux",
}
"""Maps each command to its Debian package."""
CNI_FOLDERS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def binaries_folder() -> Path:
    """The folder that build.sh uses."""
    if folder := os.environ.get(BINARIES_VARIABLE):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "routebook" / "kubernetes"


def cni_folder() -> Path | None:
    return next((folder for folder in CNI_FOLDERS if (folder / "ptp").exists()), None)


def docker() -> str | None:
    """Path of the Docker client. Prefers the system's, since the first one on PATH may be a different program."""
    return shutil.which("docker", path=SYSTEM_PATH) if Path("/usr/bin/docker").exists() else shutil.which("docker")


def missing() -> str | None:
    """The reason why no cluster can run here, or None."""
    if os.geteuid() != 0:
        return "a cluster needs root: namespaces, cgroups and packet filters"
    folder = binaries_folder()
    if absent := [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]:
        return f"{', '.join(absent)} not in {folder}: run tests/kubernetes/build.sh, or set {BINARIES_VARIABLE}"
    packages = {package for name, package in PACKAGES.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if cni_folder() is None:
        packages.add("containernetworking-plugins")
    if packages:
        return f"packages are missing: apt-get install {' '.join(sorted(packages))}"
    return None


def engine_missing() -> str | None:
    """The reason why no images are available, or None. Images come from the local Docker engine."""
    client = docker()
    if client is None:
        return "docker is not installed"
    try:
        result = subprocess.run([client, "version"], check=False, capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer within 10 s"
    return None if result.returncode == 0 else "no Docker engine answers"
