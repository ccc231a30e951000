# The actual completion mechanism on an emulated drive: 5.10 polls preadv2 and sleeps first if configured; 6.1 and 6.12 accept the same
# flags and settings and complete by interrupt, and poll for io_uring; without poll queues no kernel polls. The program must report the
# mechanism from its counts each time, and restore the settings. Its times are those of an emulated machine.
DMESG_ALLOW='Ignoring bogus Namespace Identifiers' # the kernel's message for the emulated drive
wait_block /dev/nvme0n1
queue=/sys/block/nvme0n1/queue
case $(uname -r) in 5.10.*) old=yes ;; *) old=no ;; esac
[ "$(cat /sys/module/nvme/parameters/poll_queues)" = 2 ] || fail "the driver did not take nvme.poll_queues"

# poll_queues N: rebinds the drive with N poll queues (the driver is built into these kernels).
poll_queues() {
  local address
  address=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
  echo "$1" >/sys/module/nvme/parameters/poll_queues
  echo "$address" >/sys/bus/pci/drivers/nvme/unbind
  within 10 "the end of the controller" test ! -e /dev/nvme0
  echo "$address" >/sys/bus/pci/drivers/nvme/bind
  wait_block /dev/nvme0n1
}

settings() { echo "$(cat $queue/io_poll) $(cat $queue/io_poll_delay) $(cat $queue/scheduler)"; }

# study NAME MECHANISM...: measures them. If a busy machine does too few reads to determine the mechanism, the measurement is repeated for longer.
study() {
  measure 1500ms "$@"
  ! grep -q ' not known ' "/tmp/$1.said" || { step "too few reads: repeat"; rm -rf "/tmp/$1"; measure 10s "$@"; }
}

# measure DURATION NAME MECHANISM...: measures, and checks that the settings are restored. Status 1: some could not be measured.
measure() {
  local duration=$1 name=$2 before list= status=0
  shift 2
  for mechanism in "$@"; do list="$list\"$mechanism\", "; done
  cat >/tmp/$name.toml <<TOML
title = "$name"
duration = "$duration"
repeats = 1
warm_up = "0s"
settle = "0s"
idle_baseline = "0s"
power_sensors = "listed"
on_failure = "continue"
target = { device = "/dev/nvme0n1" }
sensor = [{ sensor = "kernel", interval = "250ms" }, { sensor = "cputime", interval = "250ms" }]
[workload]
kind = "fio"
mechanism = [$list]
rw = "randread"
options = { direct = true, thread = true }
TOML
  before=$(settings)
  /host/pilotlab run /tmp/$name.toml --i-may-overwrite /dev/nvme0n1 --out /tmp/$name >/tmp/$name.said 2>&1 || status=$?
  sed -n "/^$name/,\$p" /tmp/$name.said
  [ $status -le 1 ] || { cat /tmp/$name.said; fail "$name: status $status"; }
  [ "$(settings)" = "$before" ] || fail "settings were $before and are $(settings)"
  [ -z "$(ls /run/pilotlight/changes 2>/dev/null)" ] || fail "a journal is left"
}

# ran NAME REQUESTED ACTUAL [WORDS]: checks the reported mechanism, and the reason if WORDS is set. On a busy machine a polling thread is
# preempted so often that the program cannot tell that from sleep: it must say so, and the check of this mechanism is skipped.
ran() {
  if starved "$1" "$2"; then
    echo "SKIPPED: $1: $2: the machine is too busy to tell polling from sleep"
    return
  fi
  grep -Eq "^ *$2  +$3  +1 of 1 " /tmp/$1.said || fail "$1: $2 did not run as $3"
  [ -z "${4-}" ] || grep -E "requested $2, actual $3: " /tmp/$1.said | grep -Eq "$4" || fail "$1: no evidence of $2: $4"
}
starved() { grep -q "requested $2, actual mechanism unknown: .*the threads slept without a setting for it" "/tmp/$1.said"; }
# has_result NAME WORDS: checks that the results contain the words.
has_result() { grep -Eq "$2" /tmp/$1/results.json || fail "$1: not in the results: $2"; }

step "with poll queues"
fixed="hybrid 50us"
[ $old = yes ] || fixed=
study queues interrupt classic hybrid ${fixed:+"$fixed"} "uring interrupt" "uring classic"
ran queues interrupt interrupt
ran queues "uring interrupt" "uring interrupt"
ran queues "uring classic" "uring classic"
if [ $old = yes ]; then
  ran queues classic classic
  ran queues hybrid hybrid
  ran queues "hybrid 50us" "hybrid 50us"
  has_result queues '"io_poll_delay": 50'
else
  ran queues classic interrupt 'only for io_uring'
  ran queues hybrid interrupt 'only for io_uring'
  has_result queues '"mechanism": "hybrid \(ran interrupt\)"'
  case $(uname -r) in
    6.1.*) ran queues hybrid interrupt 'io_poll_delay was accepted and reads back as written, without effect' ;;
    *) ran queues hybrid interrupt 'io_poll_delay: 0 was written but -1 is read back: this kernel ignores the setting' ;;
  esac
fi

step "the map has what ran"
expect "the map" /host/pilotlab advise /tmp/queues --map mechanism
cat /tmp/expect.out
grep -q 'No power was measured' /tmp/expect.out || fail "the output does not say that there are no watts"
if [ $old = no ] && ! starved queues "uring classic"; then
  /host/pilotlab advise /tmp/queues --map mechanism --json | sed -n '/"maps"/,/"mechanisms"/p' >/tmp/maps
  grep -q '"uring classic"' /tmp/maps && ! grep -q '"classic"' /tmp/maps || fail "what did not run is in the map"
fi

step "without poll queues"
poll_queues 0
study none interrupt classic "uring classic"
ran none interrupt interrupt
ran none classic interrupt 'boot with nvme.poll_queues=N'
case $(uname -r) in
  5.10.* | 6.1.*) ran none "uring classic" "uring interrupt" ;; # it spins until the interrupt
  *) has_result none 'Operation not supported' ;;
esac

if [ $old = yes ]; then
  step "a sleep that was set comes back after kill -9"
  poll_queues 2
  before=$(settings)
  printf '[machine]\nio_poll_delay = 7\nio_poll = false\n' >/tmp/machine.toml
  /host/pilotlab measure --repeats 1 --settle 0s --sensor cputime --settings /tmp/machine.toml --device /dev/nvme0n1 -- sleep 1000 >/tmp/with 2>&1 &
  pid=$!
  is_set() { [ "$(cat $queue/io_poll_delay) $(cat $queue/io_poll)" = "7 0" ]; }
  within 20 "the settings" is_set
  kill -9 $pid
  killall -q sleep || true # the settings are applied first: the command may not have started
  is_set || fail "something else than restore put it back"
  expect "restore" /host/pilotlab restore
  [ "$(settings)" = "$before" ] || fail "settings were $before and are $(settings)"
fi
