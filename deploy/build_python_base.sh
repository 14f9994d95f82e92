#!/bin/sh
# Makes a base image with Python from the distribution's packages, for machines without an image registry.
# Usage: build_python_base.sh [TAG [SUITE]]      needs: root, mmdebstrap, a running Docker engine
# SUITE is a Debian release: trixie has Python 3.13, bookworm 3.11.
#
# Environment:
# VARIANT   mmdebstrap's --variant; `minbase` makes a base with package manager and Perl, like the public image
set -eu

tag=${1:-routebook-base:python3.13}
suite=${2:-trixie}
python=python3.13
if [ "$suite" = bookworm ]; then python=python3.11; fi
. "$(dirname "$0")/unpack_packages.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

# "extract" unpacks the packages without running their installation scripts; the lines below do what those would have done.
root=$folder/root
packages=base-files,bash,ca-certificates,coreutils,dash,findutils,grep,libc-bin,libstdc++6,sed,tzdata,$python-venv
unpack_packages "${VARIANT:-extract}" "$packages" "$root" "$suite"

ln -sf "$python" "$root/usr/bin/python3"
ln -sf dash "$root/usr/bin/sh"
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
mkdir -p "$root/etc/ssl/certs" "$root/tmp"
chmod 755 "$root"
chmod 1777 "$root/tmp"
find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale" "$root/var/lib/apt" "$root/var/cache"

tar -C "$root" -c . | "${ENGINE:-docker}" import \
  --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
  --change 'CMD ["python3"]' - "$tag" >/dev/null
"${ENGINE:-docker}" run --rm --network none "$tag" python3 --version
