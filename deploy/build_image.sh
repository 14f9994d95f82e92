#!/bin/sh
# Builds the images routebook:<version> and routebook-pipeline:<version>.
# Usage: build_image.sh [worker|pipeline ...]      without an argument: both
#
# Environment:
# ENGINE         docker or podman; default: the first one found that can build (Docker needs BuildKit)
# TAG            name of the image, with one target only; default: routebook:<version> or routebook-pipeline:<version>
# BASE           base image; default: python:3.13-slim if it is present or can be pulled, else one made from Debian packages
# PIP_CONFIG_FILE, PIP_INDEX_URL, SSL_CERT_FILE
#                as for pip; passed to the build as secrets, so no layer contains them
# SBOM_DIR       folder for <target>.cdx.json, the bill of materials (CycloneDX); default: none is written
# BUILD_NETWORK  network of the build steps, for instance `host`
#
# Exit code 75: no engine can build.
set -eu

cd "$(dirname "$0")/.."
PUBLIC_BASE=python:3.13-slim
OWN_BASE=routebook-base:python3.13
PULL_SECONDS=60

fail() {
  printf 'build_image.sh: %s\n' "$*" >&2
  exit 3
}

can_build() {
  case "$1" in
    *podman) "$1" info ;;
    # Without BuildKit, `docker build` has no option --secret.
    *) DOCKER_BUILDKIT=1 "$1" build --help 2>&1 | grep -q -- --secret && "$1" version ;;
  esac >/dev/null 2>&1
}

# Tries every docker and podman on PATH: the first `docker` may be a client without BuildKit or without a server.
find_engine() {
  for name in docker podman; do
    for folder in $(printf '%s' "$PATH" | tr ':' ' '); do
      if [ -x "$folder/$name" ] && can_build "$folder/$name"; then
        printf '%s' "$folder/$name"
        return
      fi
    done
  done
}

find_base() {
  for image in "$PUBLIC_BASE" "$OWN_BASE"; do
    if "$ENGINE" image inspect "$image" >/dev/null 2>&1; then
      printf '%s' "$image"
      return
    fi
    if [ "$image" = "$PUBLIC_BASE" ] && timeout "$PULL_SECONDS" "$ENGINE" pull --quiet "$image" >/dev/null 2>&1; then
      printf '%s' "$image"
      return
    fi
  done
  command -v mmdebstrap >/dev/null || fail "$PUBLIC_BASE cannot be pulled, and mmdebstrap is not installed to make a base image; set BASE=…"
  ENGINE=$ENGINE deploy/build_python_base.sh "$OWN_BASE" >&2
  printf '%s' "$OWN_BASE"
}

# An image without a status file of dpkg gets a bill of the Python packages alone.
write_sbom() {
  lock=requirements-image.lock
  if [ "$1" = pipeline ]; then lock=requirements-pipeline.lock; fi
  mkdir -p "$SBOM_DIR"
  "$ENGINE" run --rm --network none --entrypoint python3 "$2" -c 'print(open("/var/lib/dpkg/status").read())' \
    >"$work/status" 2>/dev/null || : >"$work/status"
  python3 deploy/make_sbom.py "$lock" "$version" "$work/status" >"$SBOM_DIR/$1.cdx.json"
  printf '%s\n' "$SBOM_DIR/$1.cdx.json"
}

ENGINE=${ENGINE:-$(find_engine)}
if [ -z "$ENGINE" ]; then
  printf 'build_image.sh: no container engine that can build is available: needs docker with BuildKit (docker-buildx), or podman\n' >&2
  exit 75
fi
BASE=${BASE:-$(find_base)}

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' service/routebook/__init__.py)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
created=$(git log -1 --format=%cI 2>/dev/null || date -u +%Y-%m-%dT%H:%M:%SZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
set -- "${@:-all}"
targets=$*
if [ "$targets" = all ]; then targets="worker pipeline"; fi
case "${TAG:+named} $targets" in
  named\ *\ *) fail "TAG=$TAG would name two images; build only one: worker or pipeline" ;;
esac

set --
if [ -n "${PIP_INDEX_URL:-}" ]; then
  printf '[global]\nindex-url = %s\nextra-index-url = %s\n' "$PIP_INDEX_URL" "${PIP_EXTRA_INDEX_URL:-}" >"$work/pip.conf"
  set -- "$@" --secret "id=pip,src=$work/pip.conf"
else
  for file in "${PIP_CONFIG_FILE:-}" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf" /etc/pip.conf; do
    if [ -f "$file" ]; then
      set -- "$@" --secret "id=pip,src=$file"
      break
    fi
  done
fi
for file in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}"; do
  if [ -f "$file" ]; then
    set -- "$@" --secret "id=ca,src=$file"
    break
  fi
done
if [ -n "${BUILD_NETWORK:-}" ]; then set -- "$@" --network "$BUILD_NETWORK"; fi
case "$ENGINE" in
  *podman) set -- "$@" --format docker ;; # the OCI format has no HEALTHCHECK
esac

for target in $targets; do
  case "$target" in
    worker) tag=routebook:$version ;;
    pipeline) tag=routebook-pipeline:$version ;;
    *) fail "'$target' is not an image; use worker or pipeline" ;;
  esac
  tag=${TAG:-$tag}
  DOCKER_BUILDKIT=1 "$ENGINE" build --target "$target" --tag "$tag" --build-arg "BASE=$BASE" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "CREATED=$created" "$@" .
  "$ENGINE" image inspect --format "$tag, {{.Size}} bytes" "$tag"
  if [ -n "${SBOM_DIR:-}" ]; then write_sbom "$target" "$tag"; fi
done
