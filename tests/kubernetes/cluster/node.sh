#!/bin/bash
# One node of the cluster. `nodes.py` starts it as the first process of its own namespaces (mounts, processes, network,
# host name), so when it ends, the kernel ends everything in it. Environment:
#
#   STATE       the cluster's folder
#   NUMBER      number of this node; node 1 also runs the control plane
#   ADDRESS     address of this node
#   ROUTES      "pods-network via-address …" for each other node
#   SERVICES    network of all Services
#   NODE_GRACE  silence after which a node counts as lost
set -euo pipefail
PATH=$STATE/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
folder=$STATE/node$NUMBER
keys=$STATE/certificates
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy
trap 'exit 0' TERM
hostname "node$NUMBER"
ulimit -n "$(ulimit -Hn)" || true

# Folders that exist once per machine and that the nodes must not share.
own_folders() {
  local path
  mount --make-rshared /
  for path in /var/lib/kubelet /var/lib/cni /run/containerd /var/log/pods /var/log/containers; do
    mkdir -p "$folder/own$path"
    mount --bind "$folder/own$path" "$path"
    mount --make-rshared "$path"
  done
  mount -t tmpfs tmpfs /run/netns
  mount --make-rshared /run/netns
  # The only folder that all nodes share. The host-path provisioner puts claims there; its path is fixed.
  mount --bind "$STATE/claims" /tmp/hostpath_pv
}

# The kubelet requires these values and would set them for the whole machine. Files with the values are mounted instead.
own_kernel_settings() {
  local setting value file
  mkdir -p "$folder/sysctl"
  while read -r setting value; do
    [ -e "/proc/sys/$setting" ] || continue
    file=$folder/sysctl/${setting//\//.}
    echo "$value" >"$file"
    mount --bind "$file" "/proc/sys/$setting"
  done <<'SETTINGS'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SETTINGS
}

# nodes.py creates eth0. Pods of other nodes are reached through those nodes. Service addresses are translated before a
# packet leaves, but the kernel needs a route to create the packet at all: a bridge without ports provides it.
network() {
  local pods via
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
  ip link set lo up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  ip address add "$ADDRESS/24" dev eth0
  ip link set eth0 up
  set -- $ROUTES
  while [ $# -gt 0 ]; do
    pods=$1 via=$2
    ip route add "$pods" via "$via"
    shift 2
  done
  ip link add services type bridge
  ip link set services up
  ip route add "$SERVICES" dev services src "$ADDRESS"
}

# Runs a program in the background and restarts it whenever it ends.
keep() {
  local name=$1
  shift
  (
    set +e
    while true; do
      "$@" >>"$folder/log/$name.log" 2>&1 </dev/null
      echo "== ended with $?, started again" >>"$folder/log/$name.log"
      sleep 1
    done
  ) &
}

control_plane() {
  # No fsync: a test cluster need not survive a crash of the machine.
  keep etcd etcd --unsafe-no-fsync --data-dir "$STATE/etcd" --log-level error \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380
  keep apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 \
    --bind-address "$ADDRESS" --advertise-address "$ADDRESS" --secure-port 6443 \
    --service-cluster-ip-range "$SERVICES" --allow-privileged=true \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --client-ca-file "$keys/ca.crt" --tls-cert-file "$keys/apiserver.crt" --tls-private-key-file "$keys/apiserver.key" \
    --kubelet-client-certificate "$keys/admin.crt" --kubelet-client-key "$keys/admin.key" \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$keys/accounts.pub" --service-account-signing-key-file "$keys/accounts.key"
}

controllers() {
  keep controller-manager kube-controller-manager --kubeconfig "$keys/controller-manager.conf" \
    --leader-elect=false --bind-address 127.0.0.1 --use-service-account-credentials \
    --service-account-private-key-file "$keys/accounts.key" --root-ca-file "$keys/ca.crt" \
    --cluster-signing-cert-file "$keys/ca.crt" --cluster-signing-key-file "$keys/ca.key" \
    --enable-hostpath-provisioner --flex-volume-plugin-dir "$folder/plugins" \
    --node-monitor-grace-period "$NODE_GRACE"
  keep scheduler kube-scheduler --kubeconfig "$keys/scheduler.conf" --leader-elect=false --bind-address 127.0.0.1
  keep coredns coredns -conf "$STATE/Corefile"
  open_claims &
}

# The provisioner creates folders that only root can write to, but pods run as other users.
open_claims() {
  while true; do
    find /tmp/hostpath_pv -mindepth 1 -maxdepth 1 -type d ! -perm 1777 -exec chmod 1777 {} + 2>/dev/null || true
    sleep 0.3
  done
}

own_folders
own_kernel_settings
network
keep containerd containerd --config "$folder/containerd.toml"
if [ "$NUMBER" = 1 ]; then control_plane; fi
until [ -S /run/containerd/containerd.sock ] &&
  ctr -n k8s.io images import "$STATE/pause.tar" >/dev/null 2>&1; do sleep 0.1; done
until kubectl --kubeconfig "$keys/admin.conf" get --raw /readyz >/dev/null 2>&1; do sleep 0.3; done
if [ "$NUMBER" = 1 ]; then controllers; fi
keep kubelet kubelet --config "$folder/kubelet.yaml" --kubeconfig "$keys/node$NUMBER.conf" \
  --root-dir /var/lib/kubelet --hostname-override "node$NUMBER" --node-ip "$ADDRESS"
keep kube-proxy kube-proxy --config "$folder/proxy.yaml"
# As the first process of its namespace it must reap orphaned processes.
while true; do
  wait || true
  sleep 1
done
