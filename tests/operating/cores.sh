#!/usr/bin/env bash
# Throughput with 1, 2, 4 and 6 cores: medians. Each core of the server has a load process with one connection on another CPU.
#
#   cargo build --release -p pilotlight && tests/operating/cores.sh [ROUNDS] [TIME]
#
# Needs 13 CPUs: the server's are 0 to 5, those of the load from FIRST (7) on. PROGRAM is another build.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} time=${2:-2500ms} first=${FIRST:-7} program=${PROGRAM:-target/release/pilotlight}
(($(nproc) > 12)) || { echo "needs 13 CPUs, found $(nproc)" >&2; exit 1; }
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT

# measure CORES SIZE: prints the sum of requests per second.
measure() {
  local loads=()
  for ((at = 0; at < $1; at++)); do
    taskset -c $((first + at)) "$program" load --rw randread --bs "$2" --iodepth 32 --ramp_time 500ms --runtime "$time" --json \
      >"$folder/load$at" 2>/dev/null &
    loads+=($!)
  done
  wait "${loads[@]}"
  (cd "$folder" && python3 -c 'import json, sys; print(sum(json.load(open(name))["total"]["rate_iops"] for name in sys.argv[1:]))' \
    $(seq -f 'load%g' 0 $(($1 - 1))))
}

for ((round = 0; round < rounds; round++)); do
  for cores in 1 2 4 6; do
    "$program" serve --listen 127.0.0.1:4420 --cores "0-$((cores - 1))" --io-threads "$cores" --policy static \
      --namespace mem:1GiB --admin-socket "$folder/socket" >/dev/null 2>"$folder/log" &
    server=$!
    until "$program" status --ready --socket "$folder/socket" >/dev/null 2>&1; do
      kill -0 $server || { cat "$folder/log"; exit 1; }
      sleep 0.1
    done
    for size in 4k 128k; do echo "$cores $size $(measure "$cores" "$size")"; done
    kill $server && wait $server || true
  done
done | tee /dev/stderr | python3 -c '
import collections, statistics, sys
rates = collections.defaultdict(list)
for cores, size, rate in map(str.split, sys.stdin):
    rates[size, cores].append(float(rate))
for (size, cores), values in rates.items():
    print(f"{cores} cores, {size}: {statistics.median(values):.0f} per s ({min(values):.0f} to {max(values):.0f})")'
