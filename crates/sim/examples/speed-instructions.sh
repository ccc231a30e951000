#!/usr/bin/env bash
# Instructions for each simulated request at SANDMAN's greatest rate (Fig 3, 10,240 k IOPS): the difference between a longer
# and a shorter run, so that the start does not count. Fails beyond the limit: 1,686 as measured on 2026-11-28 and 2 %
# (the profile dev checks overflows). It was 1,649 before servers on sockets; the rest of the difference is not found.
#
#   cargo build -p pilotlight-sim --example speed && crates/sim/examples/speed-instructions.sh
set -euo pipefail
cd "$(dirname "$0")/../../.."

limit=${LIMIT:-1720}
program=target/debug/examples/speed

# counted MILLISECONDS: "instructions requests".
counted() {
  local out
  out=$(valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null "$program" static 10240 "$1" 2>&1)
  local instructions requests
  instructions=$(sed -n 's/.*I *refs: *//p' <<<"$out" | tr -d ,)
  requests=$(sed -n 's/.* \([0-9]*\) answered.*/\1/p' <<<"$out")
  echo "$instructions $requests"
}

read -r short_instructions short_requests <<<"$(counted 10)"
read -r long_instructions long_requests <<<"$(counted 30)"
each=$(((long_instructions - short_instructions) / (long_requests - short_requests)))
echo "$each instructions a simulated request (limit $limit)"
((each <= limit))
