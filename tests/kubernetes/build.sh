#!/bin/bash
# Builds the programs of a cluster (Kubernetes, etcd, CoreDNS, Helm, the pause program) from Go modules.
#
#   build.sh [FOLDER]     default: $ROUTEBOOK_KUBE_BIN, else routebook/kubernetes in the user's cache folder
#
# Existing binaries are kept; delete one to rebuild it. Needs Go and access to a Go module proxy. With empty caches it
# takes about 15 minutes on one core and 7 GB of disk, with warm caches some seconds per binary.
set -euo pipefail

KUBERNETES=v1.34.2
ETCD=v3.6.5
COREDNS=v1.13.2
HELM=v3.19.0
# Only the plugins that this cluster needs: the full list would pull in the libraries of every cloud.
COREDNS_PLUGINS="bind cache errors health hosts kubernetes loadbalance log ready reload template"

die() { echo "build.sh: $*" >&2; exit 1; }

folder=${1:-${ROUTEBOOK_KUBE_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/routebook/kubernetes}}
command -v go >/dev/null || die "Go is missing"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
modules=$folder/modules
kubernetes_minor=${KUBERNETES#v1.}
kubernetes_minor=${kubernetes_minor%%.*}

missing() { [ ! -x "$folder/$1" ]; }

# Creates a Go module that only selects versions, because `go install` refuses programs whose go.mod replaces modules, as
# those of Kubernetes and etcd do.
enter_module() {
  mkdir -p "$modules/$1"
  cd "$modules/$1"
  [ -f go.mod ] || go mod init "$1" 2>/dev/null
}

build() { # FLAGS PACKAGE…: each program is named after the last part of its package
  local flags=$1
  shift
  nice -n 10 go build -mod=mod -buildvcs=false -ldflags "-s -w $flags" -o "$folder/" "$@"
}

build_kubernetes() {
  local packages=() name module flags=
  for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    if missing $name; then packages+=("k8s.io/kubernetes/cmd/$name"); fi
  done
  [ ${#packages[@]} -gt 0 ] || return 0
  enter_module kubernetes
  # Kubernetes' go.mod replaces its libraries with local folders. Here they must be replaced with published versions,
  # those that belong to this release.
  local definition
  definition=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | awk -F'"' '$2 == "GoMod" { print $4 }')
  for module in $(grep -o 'k8s\.io/[a-z-]* => \./staging' "$definition" | cut -d' ' -f1); do
    go mod edit -replace "$module=$module@v0.${KUBERNETES#v1.}"
  done
  go mod edit -require "k8s.io/kubernetes@$KUBERNETES"
  # Without these flags the server reports v0.0.0-master, and a chart with a kubeVersion is refused.
  for module in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $module.gitVersion=$KUBERNETES -X $module.gitMajor=1 -X $module.gitMinor=$kubernetes_minor"
    flags+=" -X $module.gitTreeState=clean"
  done
  build "$flags" "${packages[@]}"
}

# Debian's etcd 3.4 makes Kubernetes 1.34 log many errors, and has no option to skip fsync.
build_etcd() {
  missing etcd || return 0
  enter_module etcd
  go mod edit -require "go.etcd.io/etcd/server/v3@$ETCD"
  nice -n 10 go build -mod=mod -buildvcs=false -ldflags "-s -w" -o "$folder/etcd" go.etcd.io/etcd/server/v3
}

build_coredns() {
  missing coredns || return 0
  enter_module coredns
  {
    printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
    # shellcheck disable=SC2086 # a list of words
    printf '\t_ "github.com/coredns/coredns/plugin/%s"\n' $COREDNS_PLUGINS
    printf ')\n\nfunc main() { coremain.Run() }\n'
  } >main.go
  go mod edit -require "github.com/coredns/coredns@$COREDNS"
  nice -n 10 go build -mod=mod -buildvcs=false -ldflags "-s -w" -o "$folder/coredns" .
}

build_helm() {
  missing helm || return 0
  local helm=helm.sh/helm/v3 flags="-X helm.sh/helm/v3/internal/version.version=$HELM" rules
  # Otherwise `helm template` and `helm lint` assume Kubernetes 1.20.
  for rules in pkg/chartutil pkg/lint/rules; do
    flags+=" -X $helm/$rules.k8sVersionMajor=1 -X $helm/$rules.k8sVersionMinor=$kubernetes_minor"
  done
  GOBIN=$folder nice -n 10 go install -buildvcs=false -ldflags "-s -w $flags" "$helm/cmd/helm@$HELM"
}

# The first process of each pod: it keeps the pod's namespaces and reaps orphaned processes.
build_pause() {
  missing pause || return 0
  enter_module pause
  cat >main.go <<'GO'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for reaped := 1; reaped > 0; {
			reaped, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
GO
  CGO_ENABLED=0 go build -ldflags "-s -w" -o "$folder/pause" .
}

build_kubernetes
build_etcd
build_coredns
build_helm
build_pause
echo "$folder"
