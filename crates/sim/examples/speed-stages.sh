#!/usr/bin/env bash
# Where the instructions of a simulated request go, by stage. The compiler inlines most of a window into one function, so the lines
# that an instruction was inlined from decide, the innermost first. Arguments are those of the example `speed`; needs valgrind
# and binutils.
#
#   cargo build --release -p pilotlight-sim --example speed && crates/sim/examples/speed-stages.sh static 10240 20
set -euo pipefail
cd "$(dirname "$0")/../../.."

program=target/release/examples/speed
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

valgrind --tool=callgrind --dump-instr=yes --compress-pos=no --compress-strings=no \
  --callgrind-out-file="$folder/out" "$program" "$@" >"$folder/said" 2>/dev/null
requests=$(sed -n 's/.* \([0-9]*\) answered.*/\1/p' "$folder/said")

# "ADDRESS COUNT" of the program's own instructions: what a call costs (the line after calls=) counts where it is spent.
awk '/^ob=/ { own = /speed$/ } /^calls=/ { call = 1; next }
  /^0x/ { if (!call && own) count[$1] += $NF; call = 0 }
  END { for (address in count) print address, count[address] }' "$folder/out" >"$folder/counts"

cut -d' ' -f1 "$folder/counts" | addr2line -aifC -e "$program" | awk -v requests="$requests" '
  FNR == NR { count[$1] = $2; next }
  /^0x/ { settle(); address = $1; sub(/^0x0*/, "0x", address); frames = lines = 0; next }
  ++lines % 2 == 1 { called = symbol = $0; next } # the last is the outermost
  /crates\/(sim|policy)\// { file[++frames] = $0; from[frames] = called }
  function by_file(path) {
    if (path ~ /engine\/order.rs/) return "order of a window"
    if (path ~ /sim\/src\/ssd\//) return "drives"
    if (path ~ /engine\/link.rs/) return "network"
    if (path ~ /collect.rs|histogram.rs/) return "results"
    if (path ~ /meter.rs|power.rs/) return "meter"
    if (path ~ /director.rs|crates\/policy/) return "director and policy"
  }
  function by_symbol() {
    if (symbol ~ /Floor::poll/) return "poll steps"
    if (symbol ~ /core::Core/) return "core loop"
    if (symbol ~ /host::Host/) return "hosts and arrivals"
  }
  function by_phase(at) {
    if (file[at] !~ /engine\/window.rs/) return ""
    if (from[at] ~ /arrivals$/) return "hosts and arrivals"
    if (from[at] ~ /network$/) return "network"
    if (from[at] ~ /drives$/) return file[1] ~ /due.rs|floor.rs/ ? "completions" : "drives"
  }
  function stage(   at, found) {
    for (at = 1; at <= frames; at++) if (found = by_file(file[at])) return found
    if (found = by_symbol()) return found
    for (at = 1; at <= frames; at++) if (found = by_phase(at)) return found
    return "everything else"
  }
  function settle() { if (address != "") { sum[stage()] += count[address]; all += count[address] } }
  function show(what) { printf "%-20s %7.1f %5.1f %%\n", what, sum[what] / requests, 100 * sum[what] / all }
  END {
    settle()
    stages = split("hosts and arrivals|core loop|poll steps|order of a window|drives|completions|network|results|meter|director and policy|everything else", name, "|")
    for (at = 1; at <= stages; at++) show(name[at])
    printf "%-20s %7.1f\n", "all", all / requests
  }' "$folder/counts" -
