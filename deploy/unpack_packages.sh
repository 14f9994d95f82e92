# Functions for the scripts that make images from the distribution's packages. Source this file.

# unpack_packages VARIANT PACKAGES FOLDER [SUITE]
# VARIANT is mmdebstrap's; PACKAGES are separated by commas. SUITE is by default the machine's own release; a newer one of
# the same distribution has newer packages.
unpack_packages() (
  . /etc/os-release
  suite=${4:-${VERSION_CODENAME:?this system does not name its release}}
  sources=$(package_sources "$suite" "${VERSION_CODENAME:-}" /etc/apt)
  # shellcheck disable=SC2086 # split into one argument per line; no line contains a blank
  mmdebstrap --quiet --variant="$1" --format=directory --include="$2" "$suite" "$3" $sources
)

# package_sources SUITE OWN_SUITE FOLDER
# Prints the package sources to use. The machine's own sources in FOLDER can certainly be reached from it, but they name
# OWN_SUITE: for another suite only their mirror is printed.
package_sources() (
  for source in "$3"/sources.list.d/debian.sources "$3"/sources.list.d/ubuntu.sources "$3"/sources.list; do
    if [ ! -s "$source" ]; then continue; fi
    if [ "$1" = "$2" ]; then
      printf '%s\n' "$source"
    else
      mirror=$(awk '$1 == "deb" { sub(/\[[^]]*\]/, "") } $1 == "deb" || $1 == "URIs:" { print $2; exit }' "$source")
      if [ -n "$mirror" ]; then
        printf '%s\n' "$mirror"
        exit
      fi
    fi
  done
)
