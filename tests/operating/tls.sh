#!/usr/bin/env bash
# Throughput with TLS in user space relative to that without, server and load on a CPU each: medians of alternating rounds.
#
#   cargo build --release -p pilotlight && tests/operating/tls.sh [ROUNDS] [TIME]
#
# On a busy machine run it with `nice -n -10`. SERVER=2 LOAD=3 are other CPUs, REST=0,1 those of the server's other threads. The load
# decrypts and encrypts too, on its CPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} time=${2:-3s} program=${PROGRAM:-target/release/pilotlight}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT

# The hash of a key selects the cipher suite.
python3 - >"$folder/secrets" <<'PYTHON'
import base64, os, zlib
for host, code, length in (("aes-128-gcm", "01", 32), ("aes-256-gcm", "02", 48)):
    key = os.urandom(length)
    text = base64.b64encode(key + zlib.crc32(key).to_bytes(4, "little")).decode()
    print(f"nqn.2026-01.test:{host} tls_key NVMeTLSkey-1:{code}:{text}:")
PYTHON
chmod 600 "$folder/secrets"
cat >"$folder/server.toml" <<TOML
[server]
listen = "127.0.0.1:44203"
tls_listen = "127.0.0.1:44204"
cores = "${SERVER:-0}"
[security]
secrets_file = "secrets"
[admin]
socket = "$folder/sock"
[policy]
name = "static"
[[subsystem]]
nqn = "nqn.2026-01.test:disks"
[[subsystem.namespace]]
nsid = 1
backend = "mem:256MiB"
TOML
taskset -c "${REST:-1},${SERVER:-0}" "$program" serve --config "$folder/server.toml" >"$folder/out" 2>"$folder/log" &
until "$program" status --ready --socket "$folder/sock" >/dev/null 2>&1; do
  kill -0 $! || { cat "$folder/log"; exit 1; }
  sleep 0.1
done

# load plain|SUITE OPTION...: prints MB/s.
load() {
  local target=44203 tls=(--hostnqn nqn.2026-01.test:plain)
  [[ $1 == plain ]] || target=44204 tls=(--tls --hostnqn "nqn.2026-01.test:$1" --secrets-file "$folder/secrets")
  shift
  taskset -c "${LOAD:-1}" "$program" load --target "127.0.0.1:$target" --nqn nqn.2026-01.test:disks "${tls[@]}" "$@" \
    --runtime "$time" --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["total"]["rate_iops"])'
}

for ((i = 0; i < rounds; i++)); do
  for work in 'randread 4k' 'read 128k' 'write 128k'; do
    order=(plain aes-128-gcm aes-256-gcm)
    ((i % 2 == 0)) || order=(aes-256-gcm aes-128-gcm plain)
    for how in "${order[@]}"; do echo "$i $work $how $(load "$how" --rw "${work% *}" --bs "${work#* }" --iodepth 32)"; done
  done
done | tee /dev/stderr | python3 -c '
import collections, statistics, sys
rates = collections.defaultdict(dict)
for round, work, size, how, rate in map(str.split, sys.stdin):
    rates[work, size, how][round] = float(rate)
for (work, size, how), values in rates.items():
    ratio = statistics.median(rate / rates[work, size, "plain"][round] for round, rate in values.items())
    rate = statistics.median(values.values())
    print(f"{work} {size} {how}: {rate:.0f} per s, {rate * int(size[:-1]) * 1024 / 1e6:.0f} MB/s, {ratio:.2f} of plain")'
