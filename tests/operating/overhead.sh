#!/usr/bin/env bash
# Throughput with all optional features (metrics scraped every second, the page with a reader, energy shares, a sensor) relative to a
# server without them, in alternating rounds: the median of the ratios and its 95 % bootstrap interval (10,000 resamples).
#
#   cargo build --release -p pilotlight && tests/operating/overhead.sh [ROUNDS] [SECONDS]
#
# The server has CPU 0, the load CPU 1. The threads that read counters avoid the reactors' CPUs, so they run on CPU 1 too and take CPU time
# from the load. On a machine with more CPUs give the load a separate one: SERVER=2 LOAD=3 REST=0,1.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-20} seconds=${2:-3} program=${PROGRAM:-target/release/pilotlight}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT

# start NAME PORT OPTION...
start() {
  local name=$1 port=$2
  shift 2
  taskset -c "${REST:-1},${SERVER:-0}" "$program" serve --listen "127.0.0.1:$port" --namespace mem:256MiB --cores "${SERVER:-0}" \
    --admin-socket "$folder/$name.sock" --policy static "$@" >"$folder/$name.out" 2>"$folder/$name.log" &
  until [[ -S $folder/$name.sock ]] && "$program" status --ready --socket "$folder/$name.sock" >/dev/null 2>&1; do sleep 0.1; done
}

# everything READS: runs the clients of the server with all features.
everything() {
  local token cookie
  token=$("$program" page --socket "$folder/on.sock" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["token"])')
  curl -s -c "$folder/cookies" -H "Origin: http://127.0.0.1:$page" -H 'Content-Type: application/json' -d "{\"token\":\"$token\"}" "http://127.0.0.1:$page/login" >/dev/null
  taskset -c "${REST:-1}" curl -sN -b "$folder/cookies" "http://127.0.0.1:$page/events" >"$folder/events" &
  while sleep 1; do taskset -c "${REST:-1}" curl -s "http://127.0.0.1:$metrics/metrics" >"$folder/scraped"; done &
}

# load PORT: prints requests/s.
load() {
  taskset -c "${LOAD:-1}" "$program" load --target "127.0.0.1:$1" --rw randread --bs 4096 --iodepth 16 --runtime "${seconds}s" --json 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["total"]["rate_iops"])'
}

# One server at a time: a polling reactor would take the CPU of the other.
round() { # round on|off
  if [[ $1 == on ]]; then
    start on 44201 --sensor modelled --energy-shares unassigned --metrics "$metrics" --page "$page"
    everything
  else
    start off 44201 --sensor none
  fi
  load 44201
  [[ $1 == off ]] || { grep -q energy_joules "$folder/scraped" && grep -q sample "$folder/events"; } || { echo 'the scrape or the page did not work' >&2; exit 1; }
  kill $(jobs -p) 2>/dev/null
  wait 2>/dev/null || true
  rm -f "$folder"/*.sock
}

metrics=44298 page=44299
for ((i = 1; i <= rounds; i++)); do
  order=(on off)
  ((i % 2)) || order=(off on)
  for one in "${order[@]}"; do eval "$one=\$(round $one)"; done
  echo "$on $off"
done | tee /dev/stderr | python3 -c '
import random, statistics, sys
ratios = [float(a) / float(b) for a, b in (line.split() for line in sys.stdin)]
random.seed(1)
medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
print(f"on / off: {statistics.median(ratios):.3f} ({medians[250]:.3f} to {medians[9750]:.3f}), {len(ratios)} rounds")'
