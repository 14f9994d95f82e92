#!/bin/sh
# Builds the images routebook:<version> and routebook-pipeline:<version>.
# Usage: build_image.sh [worker|pipeline ...]      both without an argument
#
# ENGINE   docker or podman; without, the first one found that can build (BuildKit, or podman's own builder)
# TAG      name of the image, for one target only; without, routebook:<version> or routebook-pipeline:<version>
# BASE     base image; without, python:3.13-slim when it is here or can be had, else one made from Debian's packages
# PIP_CONFIG_FILE, PIP_INDEX_URL, SSL_CERT_FILE   as pip reads them; they reach the build as secrets and stay in no layer
# BUILD_NETWORK   network of the build's steps, `host` for instance
set -eu

cd "$(dirname "$0")/.."
PUBLIC_BASE=python:3.13-slim
OWN_BASE=routebook-base:python3.13
PULL_SECONDS=60

end_with() {
  printf 'build_image.sh: %s\n' "$*" >&2
  exit 3
}

can_build() {
  case "$1" in
    *podman) "$1" info ;;
    # A client without BuildKit says so here, and does not know of secrets.
    *) DOCKER_BUILDKIT=1 "$1" build --help 2>&1 | grep -q -- --secret && "$1" version ;;
  esac >/dev/null 2>&1
}

# All on the path: the first `docker` may be a bare client while another one has what is needed.
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
  command -v mmdebstrap >/dev/null || end_with "$PUBLIC_BASE cannot be fetched, and there is no mmdebstrap to make a base with; name one: BASE=…"
  ENGINE=$ENGINE deploy/build_python_base.sh "$OWN_BASE" >&2
  printf '%s' "$OWN_BASE"
}

ENGINE=${ENGINE:-$(find_engine)}
[ -n "$ENGINE" ] || end_with "no engine that builds answers: docker with BuildKit (docker-buildx), or podman"
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
  named\ *\ *) end_with "TAG=$TAG would name two images; build one of them: worker, pipeline" ;;
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
  *podman) set -- "$@" --format docker ;; # OCI's own format has no HEALTHCHECK
esac

for target in $targets; do
  case "$target" in
    worker) tag=routebook:$version ;;
    pipeline) tag=routebook-pipeline:$version ;;
    *) end_with "'$target' is not an image: worker, pipeline" ;;
  esac
  tag=${TAG:-$tag}
  DOCKER_BUILDKIT=1 "$ENGINE" build --target "$target" --tag "$tag" --build-arg "BASE=$BASE" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "CREATED=$created" "$@" .
  "$ENGINE" image inspect --format "$tag, {{.Size}} bytes" "$tag"
done
