# Functions for the cases. Sourced by main.sh in the guest (busybox sh, `set -eu`).
#
# From /case/env: ADDRESS, PORT, NQN (the target); DMESG_ALLOW (an extended regular expression of kernel lines
# that the case expects, set by the case itself with its reason).
DMESG_ALLOW='^$'

step() { echo "[$(cut -d' ' -f1 /proc/uptime)] $*"; }
fail() { echo "FAILED: $*"; exit 1; }

# expect WHAT COMMAND...: runs it, and shows its output only if it fails.
expect() {
  local what=$1
  shift
  if ! "$@" >/tmp/expect.out 2>&1; then
    cat /tmp/expect.out
    fail "$what: $*"
  fi
}

# refuse WHAT COMMAND...: it must fail.
refuse() {
  local what=$1
  shift
  if "$@" >/tmp/expect.out 2>&1; then
    cat /tmp/expect.out
    fail "$what succeeded: $*"
  fi
}

# host VERB ARGUMENT...: calls host_VERB (CASE.host.sh) in run.sh and waits for it. Its output is in $REPLY.
host() {
  local answer
  exec 8<>/dev/ttyS1
  echo "$*" >&8
  read -r answer <&8
  exec 8>&-
  case $answer in
    ok*) REPLY=${answer#ok}; REPLY=${REPLY# } ;;
    *) fail "host $*: $answer" ;;
  esac
}

# within SECONDS WHAT COMMAND...: polls until the command succeeds.
within() {
  local left=$(($1 * 20)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || fail "$what was not observed"
    usleep 50000
  done
}

# block_device PATH: fails if PATH is not a block device, because tools would silently create a regular file.
block_device() { [ -b "$1" ] || fail "$1 is not a block device: $(ls -l "$1" 2>&1)"; }
wait_block() { within 15 "block device $1" test -b "$1"; block_device "$1"; }

# any_namespace: sets NAMESPACE to the first one (after connect-all it need not be nvme0n1).
any_namespace() {
  for NAMESPACE in /dev/nvme*n1; do [ -b "$NAMESPACE" ] && return; done
  return 1
}

# connect OPTION...: connects to the target by $TRANSPORT (default tcp) and waits for its first namespace.
connect() {
  expect "connect" nvme connect -t "${TRANSPORT:-tcp}" -a "$ADDRESS" -s "$PORT" -n "$NQN" "$@"
  wait_block /dev/nvme0n1
}

disconnect() {
  expect "disconnect" nvme disconnect -n "$NQN"
  within 10 "the end of the controller" test ! -e /dev/nvme0
}

# state: the controller's state in the kernel (live, connecting, ...).
state() { cat /sys/class/nvme/nvme0/state; }
is_live() { [ "$(state)" = live ]; }
is_not_live() { ! is_live; }

# sectors DEVICE: its size in units of 512 bytes.
sectors() { cat "/sys/class/block/${1#/dev/}/size"; }
has_sectors() { [ "$(sectors "$1")" = "$2" ]; }

# random_file PATH KIB: a file of random bytes, unlike any other block of the test.
random_file() { dd if=/dev/urandom of="$1" bs=1k count="$2" 2>/dev/null; }

# zeros DEVICE OFFSET_KIB LENGTH_KIB: that region reads as zero, past the page cache.
zeros() {
  dd if="$1" bs=64k iflag=direct,skip_bytes skip=$(($2 * 1024)) count=$((($3 + 63) / 64)) 2>/dev/null | cmp -n $(($3 * 1024)) - /dev/zero
}

# The kernel's log. An nvme line with one of these words fails the case unless DMESG_ALLOW matches it. "Shutdown timeout set to" only
# reports RTD3E in kernels before 6.12.
TROUBLE='error|fail|timeout|timed out|invalid|unable|lost|reset|reconnect|bad |mismatch|unsupported|duplicate|disabl|ignor|unexpected|not '
check_kernel_log() {
  local bad
  dmesg >/tmp/dmesg
  bad=$( (
    # A keep-alive in flight when a controller is removed is cancelled, which the kernel reports as a failure.
    awk '/new ctrl/ { removed = 0 } /Removing ctrl/ { removed = 1 } !(removed && /keep_?alive/)' /tmp/dmesg | grep -i nvme | grep -Ei "$TROUBLE"
    grep -E 'I/O error|BUG:|WARNING:|Oops|Call Trace|blocked for more than' /tmp/dmesg
  ) | grep -Ev "Shutdown timeout set to|$DMESG_ALLOW") || return 0
  echo "$bad"
  fail "the kernel complained (lines above)"
}
