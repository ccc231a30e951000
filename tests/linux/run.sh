#!/bin/bash
# Runs one case: boots a stock Linux kernel in QEMU (no KVM) whose NVMe/TCP initiator connects to a target.
#
#   tests/linux/run.sh CASE [KERNEL]          cases: see cases/; kernels: 6.12 (default), 6.1, 5.10, backports, 6.12-generic
#
# PEER=pilotlight|nvmet   the target (default pilotlight; nvmet is the kernel's own, in a second guest: its failures
#                         are errors of the harness or specific to Linux)
# PILOTLIGHT=PATH         the program under test (default target/release/pilotlight, else target/debug)
# PILOTLAB=PATH           the experiment program, which some guests run (default: in the same folder)
# OUT=DIR                 folder of console, server log and capture (default target/linux/PEER-KERNEL-CASE)
# BLOCK_SIZE=512|4096     of the namespace (default 4096; nvmet: always 512)
# CAPTURE=headers|full|no packet capture by QEMU's filter-dump; kept if the case fails (KEEP=1: always)
#
# Status 0: the guest reported that the case passed. 1: it failed or timed out. 2: the harness is not ready (prepare.sh was not run, no
# program).
#
# A case is cases/NAME.sh, run by the guest with the functions of guest/lib.sh. cases/NAME.host.sh has the part of this side: settings
# (below) and the functions host_VERB that the guest calls over the second serial line.
set -euo pipefail
. "$(dirname "$0")/common.sh"

[[ $# -ge 1 ]] || die "usage: run.sh CASE [KERNEL]; cases: $(cd "$HARNESS/cases" && ls -- *.sh | grep -v host.sh | sed 's/\.sh$//' | tr '\n' ' ')"
CASE=$1
KERNEL=${2:-6.12}
PEER=${PEER:-pilotlight}
CAPTURE=${CAPTURE:-headers}
OUT=${OUT:-$REPO/target/linux/$PEER-$KERNEL-$CASE}
NQN=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000042

# Settings of a case in its .host.sh.
BACKING=mem                  # mem, or file: a sparse file $DISK
SIZE_MIB=256
BLOCK_SIZE=${BLOCK_SIZE:-4096}
TIMEOUT_S=600                # for the whole guest, on a busy machine
CPUS=1
MEMORY_MIB=512
ARCHIVES=()                  # further archives for the guest (fio.cpio)
GUEST_QEMU=()                # further options for the guest's QEMU
NEEDS_SERVER=yes
STOOD_STILL=0
GUEST_ENV=                   # lines NAME=VALUE for the guest
case_before() { :; }         # runs when $DISK exists, before server and guest
host_after() { :; }          # runs if the guest passed; a non-zero status fails the case

[[ -e $HARNESS/cases/$CASE.sh ]] || die "no case '$CASE' in $HARNESS/cases"
kernel_suite "$KERNEL" >/dev/null
[[ -e $CACHE/kernel-$KERNEL/.stamp && -e $ROOT/.stamp ]] || die "kernel $KERNEL is not prepared: run tests/linux/prepare.sh $KERNEL"
rm -rf "$OUT"
mkdir -p "$OUT"
DISK=$OUT/disk.img
. "$HARNESS/guest.sh"
. "$HARNESS/peers/$PEER.sh"
# shellcheck disable=SC1090 # one per case
[[ ! -e $HARNESS/cases/$CASE.host.sh ]] || . "$HARNESS/cases/$CASE.host.sh"

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    grep -qi ":$(printf %04X $port) " /proc/net/tcp || { echo $port; return; }
  done
}

# listens PORT: whether a process listens, by the kernel's table (a probing connection would be a host to the target).
listens() { grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F]+:0000 0A" /proc/net/tcp; }

# connections: number of connections that the target has accepted and not closed. (Counted at the target's end, so that closing connections
# count.)
connections() { grep -ciE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$PORT") [0-9A-F]+:[0-9A-F]+ (01|08)" /proc/net/tcp || true; }
no_connections() { [[ $(connections) == 0 ]]; }

# soon SECONDS COMMAND...: polls until it succeeds; fails at the timeout.
soon() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}

finish() {
  guest_stop main
  [[ $NEEDS_SERVER == no ]] || peer_stop || true
}

PORT=$(free_port)
echo "$PORT" >"$OUT/port"
trap finish EXIT
started=$SECONDS
truncate -s "${SIZE_MIB}M" "$DISK"
case_before
[[ $NEEDS_SERVER == no ]] || peer_start
guest_start main "$HARNESS/cases/$CASE.sh"
guest_serve main

verdict=failed
if [[ $(guest_status main) == 0 ]]; then
  if host_after; then verdict=passed; fi
fi
trap - EXIT
finish
rm -f "$OUT"/*.initrd "$OUT"/*.ctl.* "$OUT"/*.pid
[[ $verdict == failed || ${KEEP:-0} == 1 ]] || rm -f "$OUT"/*.pcap "$OUT"/*.img
say "$CASE on $KERNEL against $PEER: $verdict after $((SECONDS - started)) s; see $OUT"
if [[ $verdict == failed ]]; then
  tail -n 60 "$OUT/main.console" >&2
  for log in "$OUT"/server*.log "$OUT"/server.console; do
    [[ -s $log ]] && { say "the end of $log:"; tail -n 20 "$log" >&2; }
  done
  if [[ $STOOD_STILL != 0 && ${AGAIN:-0} == 0 ]]; then
    say "$CASE: possibly because the machine was suspended for $STOOD_STILL s: repeat"
    AGAIN=1 exec "$0" "$@"
  fi
  exit 1
fi
