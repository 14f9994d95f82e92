# Read by the scripts that make images from the distribution's packages; does nothing by itself.

# unpack_packages VARIANT PACKAGES FOLDER [SUITE]      VARIANT is mmdebstrap's; PACKAGES with commas between
# Without a suite, from the machine's own. A later one of the same distribution has later packages.
unpack_packages() (
  . /etc/os-release
  suite=${4:-${VERSION_CODENAME:?this system does not name its release}}
  sources=$(package_sources "$suite" "${VERSION_CODENAME:-}" /etc/apt)
  # shellcheck disable=SC2086 # one argument for each line: nothing in them has a blank
  mmdebstrap --quiet --variant="$1" --format=directory --include="$2" "$suite" "$3" $sources
)

# package_sources SUITE OWN FOLDER
# The machine's own package sources: they are what can be reached from here. They name the machine's own suite; of another
# one only their mirror is of use.
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
