"""Writes the configuration files of a cluster's programs."""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tests.kubernetes.cluster.addresses import Addresses

PAUSE_IMAGE: Final = "localhost/pause:1"
UNUSED_PLUGINS: Final = (
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
)
_CAP_SYS_RESOURCE: Final = 24


def write_cluster_files(state: Path, addresses: Addresses, pause: Path) -> None:
    (state / "Corefile").write_text(_corefile(state, addresses))
    # Empty: pods can resolve only names of the cluster.
    (state / "resolv.conf").write_text("")
    _write_image(state / "pause.tar", PAUSE_IMAGE, pause)


def write_node_files(state: Path, addresses: Addresses, number: int, cni: Path) -> None:
    folder = state / f"node{number}"
    for name in ("log", "cni"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd(folder, cni))
    # With ptp instead of bridge, traffic between pods of one node is routed, so Service addresses are translated.
    pods = {"type": "host-local", "ranges": [[{"subnet": addresses.pods(number)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipam": pods}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network, indent=2))
    # Every JSON text is also YAML.
    (folder / "kubelet.yaml").write_text(json.dumps(_kubelet(state, addresses, number), indent=2))
    (folder / "proxy.yaml").write_text(json.dumps(_proxy(state, addresses, number), indent=2))


def _corefile(state: Path, addresses: Addresses) -> str:
    # Two blocks, because within one `template` would answer before `kubernetes`, whatever their order.
    return f"""cluster.local:53 in-addr.arpa:53 {{
  bind {addresses.node(1)}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {state}/certificates/admin.conf
    ttl 2
  }}
  loadbalance
}}
.:53 {{
  bind {addresses.node(1)}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def _containerd(folder: Path, cni: Path) -> str:
    snapshotter = "native" if _is_overlay(folder) else "overlayfs"
    unused = ", ".join(f'"{name}"' for name in UNUSED_PLUGINS)
    plugin = '[plugins."io.containerd.grpc.v1.cri"'
    # Without `restrict_oom_score_adj`, a root user that may not lower OOM scores could not start pods.
    return f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [{unused}]
[grpc]
address = "/run/containerd/containerd.sock"
{plugin}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = {str(not _may_raise_limits()).lower()}
{plugin}.cni]
bin_dir = "{cni}"
conf_dir = "{folder}/cni"
{plugin}.containerd]
snapshotter = "{snapshotter}"
{plugin}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{plugin}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def _kubelet(state: Path, addresses: Addresses, number: int) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{addresses.name}/node{number}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "address": addresses.node(number),
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "x509": {"clientCAFile": f"{state}/certificates/ca.crt"},
            "webhook": {"enabled": False},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDomain": "cluster.local",
        "clusterDNS": [addresses.node(1)],
        "resolvConf": f"{state}/resolv.conf",
        # No image garbage collection: without a registry a removed image could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        # Low limits, because other data may fill the machine's disk.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "5s",
        "volumePluginDir": f"{state}/node{number}/plugins",
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    }


def _proxy(state: Path, addresses: Addresses, number: int) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{state}/certificates/proxy.conf"},
        "hostnameOverride": f"node{number}",
        "mode": "iptables",
        "clusterCIDR": addresses.all_pods,
        "bindAddress": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # These are settings of the whole machine; 0 leaves them unchanged.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    }


def _write_image(target: Path, name: str, program: Path) -> None:
    """Writes an image with one program, in the format of `docker save`."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        files.add(program, "pause")
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer.getvalue(),
    }
    with tarfile.open(target, "w") as image:
        for part, content in parts.items():
            info = tarfile.TarInfo(part)
            info.size = len(content)
            image.addfile(info, io.BytesIO(content))


def _may_raise_limits() -> bool:
    status = Path("/proc/self/status").read_text()
    capabilities = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(capabilities, 16) >> _CAP_SYS_RESOURCE & 1)


def _is_overlay(folder: Path) -> bool:
    """Whether the folder is on an overlayfs; containerd's overlayfs snapshots do not work on top of one."""
    stat = subprocess.run(["stat", "-f", "-c", "%T", folder.parent], check=True, capture_output=True, text=True)
    return stat.stdout.strip() == "overlayfs"
