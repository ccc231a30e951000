# Power states: reported, set, read back, refused; transitions as set by the kernel; and the changes by `pilotlab measure` are restored at its
# end and, after kill -9, by `pilotlab restore`.
connect

step "five states"
expect "id-ctrl" nvme id-ctrl /dev/nvme0
grep -E '^(npss|apsta|ps ) ' /tmp/expect.out || { cat /tmp/expect.out; fail "no power states"; }
for line in 'npss *: 4$' 'apsta *: 0x1$' 'ps +0 : mp:8.49W operational enlat:0 exlat:0 rrt:0' 'ps +2 : mp:3.18W operational enlat:0 exlat:1000 rrt:2' \
  'ps +3 : mp:0.0400W non-operational enlat:2000 exlat:1200' 'ps +4 : mp:0.0050W non-operational enlat:500 exlat:9500'; do
  grep -Eq "$line" /tmp/expect.out || fail "id-ctrl does not show: $line"
done

# feature ID: the value of a feature as a number.
feature() { printf '%d\n' "$(nvme get-feature /dev/nvme0 -f "$1" | sed -n 's/.*[Cc]urrent value: *\(0x\)\{0,1\}\([0-9a-f]*\).*/0x\2/p')"; }
is() { [ "$(feature "$1")" = "$2" ]; }
rests() { [ "$(feature 2)" -ge 3 ]; }
read_one() { dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; }

step "the kernel allows autonomous transitions"
is 0xc 1 || fail "the kernel has not enabled transitions"
nvme get-feature /dev/nvme0 -f 0xc -H | head -12
within 20 "a state of rest" rests

step "set, read back, refuse"
# The kernel controls the transitions (6.12.117 refuses Set Features 0Ch even to root) by this file.
tolerance=/sys/class/nvme/nvme0/power/pm_qos_latency_tolerance_us
echo 0 >$tolerance
is 0xc 0 || fail "transitions are still made"
for state in 1 2 0; do
  expect "state $state" nvme set-feature /dev/nvme0 -f 2 -v $state
  is 2 $state || fail "the state is $(feature 2), not $state"
done
refuse "a state that there is not" nvme set-feature /dev/nvme0 -f 2 -v 5
grep -qi 'invalid field' /tmp/expect.out || { cat /tmp/expect.out; fail "another status than Invalid Field"; }
expect "state 1" nvme set-feature /dev/nvme0 -f 2 -v 1
expect "a rest" nvme set-feature /dev/nvme0 -f 2 -v 3
is 2 3 || fail "it does not rest"
read_one
is 2 1 || fail "after I/O the state is $(feature 2), not the last in which it worked"

step "after a reset, the kernel's own transitions"
DMESG_ALLOW='resetting controller'
expect "reset" nvme reset /dev/nvme0
within 10 "a live controller" is_live
echo 100000 >$tolerance
within 10 "transitions" is 0xc 1
nvme get-feature /dev/nvme0 -f 0xc -b >/tmp/transitions

step "with settings of the machine"
mount -t cgroup2 none /sys/fs/cgroup
# Debian's schedulers are modules, which this guest does not have; `none` is available and must be found.
nomerges=/sys/block/nvme0n1/queue/nomerges
cat >/tmp/machine.toml <<TOML
[machine]
apst = false
power_state = 2
scheduler = "none"
files = { "/proc/sys/vm/swappiness" = 1, "$nomerges" = 2 }

[machine.cgroup]
memory = "64MiB"
cpu_time = "150%"
cpus = "0"
read = "50MB/s"
TOML
# The settings: state and switch of transitions, merging, swappiness, number of our cgroups.
machine() { echo "$(feature 2) $(feature 0xc) $(cat $nomerges) $(cat /proc/sys/vm/swappiness) $(ls -d /sys/fs/cgroup/pilotlight-* 2>/dev/null | wc -l)"; }
settings() { echo "$(cat $tolerance) $(cat $nomerges) $(cat /proc/sys/vm/swappiness) $(cat /sys/fs/cgroup/cgroup.subtree_control) $(ls -d /sys/fs/cgroup/pilotlight-* 2>/dev/null | wc -l)"; }
changed() { case "$(machine)" in "2 0 2 1 1") ;; *) return 1 ;; esac; }
back() {
  local now
  now=$(settings)
  [ "$now" = "$before" ] || fail "settings were $before and are $now"
  nvme get-feature /dev/nvme0 -f 0xc -b | cmp - /tmp/transitions || fail "other transitions"
  is 0xc 1 || fail "transitions are off"
  # The drive idles again before it can be queried; with transitions off for a while, I/O shows its operational state.
  echo 0 >$tolerance
  read_one
  is 2 0 || fail "the power state is $(feature 2)"
  echo 100000 >$tolerance
}
before=$(settings)
cat >/tmp/during <<'SH'
cat /proc/self/cgroup
cd /sys/fs/cgroup/pilotlight-* && cat memory.max cpu.max cpuset.cpus io.max
SH
expect "measure" /host/pilotlab measure --show-output --repeats 1 --settle 0s --sensor cputime --settings /tmp/machine.toml --device /dev/nvme0n1 -- sh -c '
  sh /tmp/during
  nvme get-feature /dev/nvme0 -f 2; nvme get-feature /dev/nvme0 -f 0xc; cat '$nomerges
cat /tmp/expect.out
for line in '0::/pilotlight-' '^67108864$' '^150000 100000$' '^0$' 'rbps=50000000' 'alue: *0x0*2$' '^2$'; do
  grep -q "$line" /tmp/expect.out || fail "while it ran: no $line"
done
back

step "after kill -9, restore"
/host/pilotlab measure --repeats 1 --settle 0s --sensor cputime --settings /tmp/machine.toml --device /dev/nvme0n1 -- sleep 1000 >/tmp/with 2>&1 &
pid=$!
within 20 "the settings" changed
refuse "restore while it runs" /host/pilotlab restore /run/pilotlight/changes/*.jsonl
kill -9 $pid
sleep 0.2
changed || fail "something else than restore put it back"
refuse "measure before restore" /host/pilotlab measure --repeats 1 --settle 0s --sensor cputime --settings /tmp/machine.toml --device /dev/nvme0n1 -- true
grep -q 'pilotlab restore' /tmp/expect.out || { cat /tmp/expect.out; fail "the message has no remedy"; }
expect "restore" /host/pilotlab restore
cat /tmp/expect.out
back
[ -z "$(ls /run/pilotlight/changes)" ] || fail "a journal is left"

step "what the drive does not have"
echo '[machine]
power_state = 7' >/tmp/machine.toml
refuse "state 7" /host/pilotlab measure --repeats 1 --settle 0s --sensor cputime --settings /tmp/machine.toml --device /dev/nvme0n1 -- true
grep -q 'the drive has states 0 to 4' /tmp/expect.out || { cat /tmp/expect.out; fail "the message does not list the states"; }
killall -q sleep || true # killed before its command started, there is none
disconnect
