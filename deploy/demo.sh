#!/bin/bash
# `make demo`: a service on this machine with a small simulated fleet that has troubles, and the address of the console.
# Arguments go to `routebook up`. Ctrl-C stops the fleet first, then the service.
set -uo pipefail
routebook=${ROUTEBOOK:-.venv/bin/routebook}
log=$(mktemp)
up= fleet=

end() {
  trap '' INT TERM
  for pid in $fleet $up; do
    kill -INT "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
  done
  rm -f "$log"
}
trap end EXIT
trap 'exit 0' INT TERM

# With job control, each of the two is a process group of its own, so that Ctrl-C reaches only this script.
set -m
# The fleet leaves as a whole at the end, which must not be held as a mass removal.
"$routebook" up --end-with-parent --hold-minimum 1000 "$@" >"$log" 2>&1 </dev/null &
up=$!
for _ in $(seq 300); do
  grep -q '^Ctrl-C' "$log" && break
  kill -0 "$up" 2>/dev/null || { cat "$log"; exit 1; }
  sleep 0.2
done
http=$(sed -n 's/^ *HTTP API *\(http[^ ]*\).*/\1/p' "$log" | head -1)
remoting=$(sed -n 's/^ *RocketMQ *\([^ ]*\).*/\1/p' "$log" | head -1)
if [ -z "$http" ] || [ -z "$remoting" ]; then cat "$log"; exit 1; fi

"$routebook" simulate --name-servers "$remoting" --prefix demo --clusters 2 --brokers 6 --slaves 1 --topics 40 --clients 20 \
  --period 10s --poll 5s --crash-every 20s --deploy-every 45s --switch-every 60s --permission-every 40s \
  --topics-every 15s --flap-every 90s --silence-every 60s --timeout-ms 35000 </dev/null >/dev/null 2>&1 &
fleet=$!

"$routebook" kv put --url "$http" ORDER_TOPIC_CONFIG demo-topic-01 'demo-broker-1:8' >/dev/null 2>&1
"$routebook" settings set --url "$http" hold_percent 40 >/dev/null 2>&1
"$routebook" topics --url "$http" --token a-wrong-token >/dev/null 2>&1
"$routebook" settings list --url "$http" --token a-wrong-token >/dev/null 2>&1

echo
echo "Console:  $http/"
echo
echo "Six broker groups are registering; the first broker crashes within half a minute. Ctrl-C stops everything."
wait "$up"
