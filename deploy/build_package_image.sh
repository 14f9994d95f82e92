#!/bin/sh
# Makes an image of one program from the distribution's packages, for machines without an image registry.
# Usage: build_package_image.sh TAG PACKAGE [PROGRAM]      needs: root, mmdebstrap, a running Docker engine
# PROGRAM, by default named like the package, is the entry point. A container's command may repeat it as its first word.
set -eu

tag=$1
package=$2
program=${3:-$package}
. "$(dirname "$0")/unpack_packages.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

# "extract" unpacks the packages without running their installation scripts.
root=$folder/root
unpack_packages extract "base-files,ca-certificates,coreutils,dash,libc-bin,$package" "$root"

cat >"$root/entrypoint" <<ENTRYPOINT
#!/bin/sh
set -e
case "\$1" in $program) ;; *) set -- $program "\$@" ;; esac
exec "\$@"
ENTRYPOINT
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
mkdir -p "$root/tmp" "$root/$program"
chmod 755 "$root" "$root/entrypoint"
chmod 1777 "$root/tmp"
# The folder for its data, where a volume may be mounted.
chown 65534:65534 "$root/$program"
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale" "$root/var/lib/apt" "$root/var/cache"

tar -C "$root" -c . | docker import --change 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' --change 'USER 65534' \
  --change 'ENTRYPOINT ["/entrypoint"]' - "$tag" >/dev/null
