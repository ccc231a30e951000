#!/usr/bin/env bash
# docs/top.svg, the picture of `pilotlight top`: records the status of a server under load, and draws the last screen.
#
#   docs/pictures/terminal.sh            record and draw
#   docs/pictures/terminal.sh --draw     draw again from the recorded status
#
# PILOTLIGHT names the program (default: target/release/pilotlight), CORES the server's cores (default: 0,1).
set -euo pipefail
cd "$(dirname "$0")/../.."

record() {
  local program=${PILOTLIGHT:-target/release/pilotlight} folder server rate
  folder=$(mktemp -d)
  "$program" serve --cores "${CORES:-0,1}" --sensor modelled --budget 250W --admin-socket "$folder/a.sock" >/dev/null &
  server=$!
  # shellcheck disable=SC2064 # the server and the folder of now
  trap "kill $server; rm -rf '$folder'" RETURN
  while ! "$program" status --socket "$folder/a.sock" >/dev/null 2>&1; do
    kill -0 "$server"
    sleep 0.2
  done
  "$program" status --socket "$folder/a.sock" --watch 0.5 --json >"$folder/status" &
  for rate in 200 800 1600 400 100 1200 2000 600; do
    "$program" load --yield --rw randrw --rwmixread 70 --iodepth 16 --rate_iops "$rate" --runtime 4 >/dev/null
  done
  # what the picture does not show is left out; `metrics` is most of it
  python3 -c 'import json, sys
for line in list(sys.stdin)[-64:-4]:
    report = json.loads(line)
    report["metrics"] = []
    report["policy"]["parameters"] = [one for one in report["policy"]["parameters"] if one["is_set"]]
    print(json.dumps(report, separators=(",", ":")))' <"$folder/status" >docs/pictures/status.jsonl
}

[[ ${1:-} == --draw ]] || record
WRITE_DOCS=1 cargo test --quiet -p pilotlight --bins picture
