#!/bin/sh
# Makes a Redis image from the distribution's packages, for machines without an image registry.
# Usage: build_redis_image.sh [TAG [SUITE]]      needs: root, mmdebstrap, a running Docker engine
# SUITE is by default the machine's own release. A newer one has a newer Redis: Debian's trixie has 8.0.
#
# Behaves like the official image as far as the tests need it: data in /data, port 6379, and a command that begins with an
# option or a .conf file is passed to redis-server.
set -eu

tag=${1:-${ROUTEBOOK_TEST_REDIS_IMAGE:-redis:7-bookworm}}
suite=${2:-}
. "$(dirname "$0")/../../deploy/unpack_packages.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

# "extract" unpacks the packages without running their installation scripts; Redis needs none of them.
root=$folder/root
unpack_packages extract base-files,dash,coreutils,libc-bin,redis-server "$root" "$suite"

cat >"$root/entrypoint" <<'ENTRYPOINT'
#!/bin/sh
set -e
case "$1" in -* | *.conf) set -- redis-server "$@" ;; esac
# In protected mode the server answers only the local machine, which in a container excludes every client.
if [ "$1" = redis-server ]; then set -- "$@" --protected-mode no; fi
exec "$@"
ENTRYPOINT
printf 'root:x:0:0:root:/:/bin/sh\nredis:x:999:999:redis:/data:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nredis:x:999:\n' >"$root/etc/group"
mkdir -p "$root/data" "$root/tmp"
chmod 755 "$root" "$root/entrypoint"
chmod 1777 "$root/tmp"
chown 999:999 "$root/data"
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale" "$root/var/lib/apt" "$root/var/cache"

tar -C "$root" -c . | docker import \
  --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' \
  --change 'WORKDIR /data' --change 'EXPOSE 6379' --change 'USER redis' \
  --change 'ENTRYPOINT ["/entrypoint"]' --change 'CMD ["redis-server"]' \
  - "$tag" >/dev/null
docker run --rm "$tag" redis-server --version
