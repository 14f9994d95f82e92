#!/bin/sh
# Looks up known vulnerabilities of the packages in lock files, with pip-audit. `make vulnerabilities` runs it.
# Usage: find_vulnerabilities.sh LOCK...
#
# Exit code 75, with a line that begins with "left out: ", when the database cannot be reached.
set -eu

cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT INT TERM

for lock in "$@"; do
  status=0
  PYTHONPATH=.venv/fuzz-tools .venv/bin/python -m pip_audit --require-hashes --disable-pip --no-deps \
    --progress-spinner off --timeout 15 --requirement "$lock" >"$log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    printf '%s: no known vulnerability\n' "$lock"
  elif grep -qE 'ConnectionError|ServiceError|HTTPError|Max retries|Timeout|Name or service|status code|Temporary failure' "$log"; then
    printf 'left out: the database of vulnerabilities cannot be reached: %s\n' "$(tail -n 1 "$log" | cut -c 1-200)"
    exit 75
  else
    printf '%s:\n' "$lock"
    cat "$log"
    exit 1
  fi
done
