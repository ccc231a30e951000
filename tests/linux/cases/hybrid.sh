# io_uring's hybrid polling (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13), through `pilotlab read` as fio does not support it: it causes few
# interrupts and yields its CPU once per read; classic polling never yields it, and interrupts do both. Older kernels refuse it, and the
# program names the required version. All with one tool, `kind = "read"`.
DMESG_ALLOW='Ignoring bogus Namespace Identifiers' # the kernel's message for the emulated drives
wait_block /dev/nvme0n1
wait_block /dev/nvme1n1
case $(cat /sys/class/nvme/nvme0/serial) in fast*) fast=/dev/nvme0n1 slow=/dev/nvme1n1 ;; *) fast=/dev/nvme1n1 slow=/dev/nvme0n1 ;; esac
uname -r | awk -F'[.-]' '{exit !($1 > 6 || $1 == 6 && $2 >= 13)}' && has=yes || has=no

# study MECHANISM...: measures them; repeats if a starved guest did too few reads, or a poller had to yield its CPU so early that its ring
# has hardly slept since (results/completion/README.md).
study() {
  for duration in 1500ms 3s 6s; do
    measure $duration "$@"
    is_determined && return
    step "not determined: repeat"
  done
}

is_determined() { ! grep -Eq ' not known |^ *uring hybrid +uring classic ' /tmp/said; }

measure() {
  local duration=$1 list= status=0
  shift
  for mechanism in "$@"; do list="$list\"$mechanism\", "; done
  cat >/tmp/hybrid.toml <<TOML
title = "hybrid"
duration = "$duration"
repeats = 1
warm_up = "0s"
settle = "0s"
idle_baseline = "0s"
power_sensors = "listed"
on_failure = "continue"
target = { device = "$fast" }
sensor = [{ sensor = "kernel", interval = "50ms" }]
[workload]
kind = "read"
program = "/host/pilotlab"
mechanism = [$list]
TOML
  rm -rf /tmp/hybrid
  /host/pilotlab run /tmp/hybrid.toml --i-may-overwrite "$fast" --out /tmp/hybrid >/tmp/said 2>&1 || status=$?
  sed -n '/^hybrid/,$p' /tmp/said
  [ $status -le 1 ] || { cat /tmp/said; fail "bench: status $status"; }
}

# ran REQUESTED ACTUAL
ran() { grep -Eq "^ *$1  +$2  +1 of 1 " /tmp/said || fail "$1 did not run as $2"; }

step "one tool for every mechanism"
study interrupt classic "uring interrupt" "uring classic" "uring hybrid"
ran interrupt interrupt
ran "uring interrupt" "uring interrupt"
ran "uring classic" "uring classic"
case $(uname -r) in
  5.10.*) ran classic classic ;;
  *) ran classic interrupt ;;
esac
if [ $has = yes ]; then
  ran "uring hybrid" "uring hybrid"
else
  grep -q "io_uring's hybrid polling needs Linux 6.13, this is $(uname -r)" /tmp/hybrid/results.json || fail "the requirement of hybrid polling is not named"
  refuse "hybrid polling on an old kernel" /host/pilotlab read "$fast" --mechanism "uring hybrid" --runtime 1s
  grep -q 'needs Linux 6.13' /tmp/expect.out || fail "the requirement of hybrid polling is not named"
fi

[ $has = yes ] || return 0

# share KEY...: sum of these numbers of the last reading, in percent of its time.
share() {
  tr ',{' '\n\n' </tmp/read.json | awk -F: -v keys="$*" '
    $1 == "\"elapsed_ns\"" {elapsed = $2}
    {gsub(/["}]/, ""); if (index(" " keys " ", " " $1 " ")) sum += $2}
    END {printf "%d", 100 * sum / elapsed}'
}

step "how much of a read of 20 ms its thread uses a CPU"
for mechanism in interrupt "uring interrupt" "uring classic" "uring hybrid"; do
  /host/pilotlab read $slow --mechanism "$mechanism" --runtime 3s --ramp_time 500ms --json >/tmp/read.json 2>/tmp/read.err || fail "$mechanism: $(cat /tmp/read.err)"
  used=$(share cpu_user_ns cpu_system_ns)
  echo "$mechanism: $used %; $(grep -o '"ios":[0-9]*' /tmp/read.json) $(grep -o '"mean_ns":[0-9]*' /tmp/read.json) $(grep -o '"[in]*voluntary_count":[0-9]*' /tmp/read.json | tr '\n' ' ')"
  case $mechanism in
    *interrupt) [ "$used" -lt 50 ] || fail "$mechanism: $used % of a CPU" ;;
    # The sleep of hybrid polling depends on the shortest polling time so far (results/completion/README.md), so only its existence is
    # checked.
    *) [ "$used" -gt 20 ] || fail "$mechanism: $used % of a CPU" ;;
  esac
done
