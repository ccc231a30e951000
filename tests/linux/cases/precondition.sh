# Preconditioning of a drive by an experiment: refused without the drive's name on the command line, erased by `nvme format`, filled front
# to back. The measured program runs on its CPUs in a cgroup with limits, which is removed at the end, and after kill -9 by `pilotlab
# restore`.
DMESG_ALLOW='Ignoring bogus Namespace Identifiers' # the kernel's message for the emulated drive
drive=/dev/nvme0n1
wait_block $drive
mount -t cgroup2 none /sys/fs/cgroup

# in_use: number of bytes of the drive that are not zero; at_start: the number in the first bytes of a MiB.
in_use() { dd if=$drive bs=4k iflag=direct 2>/dev/null | tr -d '\0' | wc -c; }
at_start() { dd if=$drive bs=8 count=1 skip=$(($1 * 131072)) 2>/dev/null | od -An -tu8 | tr -d ' '; }
cgroups() { ls -d /sys/fs/cgroup/pilotlight-* 2>/dev/null | wc -l; }
left() { echo "$(cgroups) $(cat /sys/fs/cgroup/cgroup.subtree_control) $(ls /run/pilotlight/changes 2>/dev/null | wc -l)"; }

# experiment PRECONDITION ARGV: an experiment with limits.
experiment() {
  cat <<TOML
title = "precondition"
target = { device = "$drive" }
repeats = 1
settle = "0s"
idle_baseline = "0s"
power_sensors = "listed"
precondition = { $1 }
bind = { cpus = "1" }
sensor = [{ sensor = "cputime" }]
[machine.cgroup]
memory = "64MiB"
cpu_time = "150%"
cpus = "0-1"
read = "50MB/s"
[workload]
kind = "command"
argv = [$2]
knobs = { number = ["1", "2"] }
TOML
}
cat >/tmp/look <<'SH'
exec >>/tmp/seen 2>&1
cat /proc/self/cgroup
grep Cpus_allowed_list /proc/self/status
cd /sys/fs/cgroup/pilotlight-* && cat memory.max cpu.max cpuset.cpus io.max
echo "in use $(dd if=/dev/nvme0n1 bs=4k iflag=direct 2>/dev/null | tr -d '\0' | wc -c)"
SH
seen() { [ "$(grep -Ec "$1" /tmp/seen)" = "$2" ] || { cat /tmp/seen; fail "while it ran, not $2 times: $1"; }; }

step "refused until the drive is named"
tr '\0' '\377' </dev/zero | dd of=$drive bs=1M count="$SIZE_MIB" iflag=fullblock oflag=direct 2>/dev/null
[ "$(in_use)" = $((SIZE_MIB * 1048576)) ] || fail "the drive is not full of ones"
before=$(left)
experiment "format = true" '"sh", "/tmp/look"' >/tmp/format.toml
refuse "an unnamed drive" /host/pilotlab run /tmp/format.toml --out /tmp/refused
grep -q "i-may-overwrite" /tmp/expect.out || { cat /tmp/expect.out; fail "the message has no remedy"; }
refuse "a drive under another name" /host/pilotlab run /tmp/format.toml --i-may-overwrite /dev/nvme9n1 --out /tmp/refused
[ "$(in_use)" = $((SIZE_MIB * 1048576)) ] || fail "a refused run has written to the drive"

step "erased; in a cgroup with limits, on CPU 1"
# On a terminal, as this console, it asks for confirmation; here standard input is empty.
expect "format" /host/pilotlab run /tmp/format.toml --i-may-overwrite $drive --out /tmp/format </dev/null
seen '^0::/pilotlight-' 2
seen '^Cpus_allowed_list:.1$' 2
seen '^67108864$' 2
seen '^150000 100000$' 2
seen '^0-1$' 2
seen 'rbps=50000000' 2
seen '^in use 0$' 2
[ "$(left)" = "$before" ] || fail "there was $before and is $(left)"

step "filled, every MiB with its number"
rm /tmp/seen
experiment "fill = 1" '"sh", "/tmp/look"' >/tmp/fill.toml
expect "fill" /host/pilotlab run /tmp/fill.toml --i-may-overwrite $drive --out /tmp/fill </dev/null
for at in 0 1 $((SIZE_MIB - 1)); do
  [ "$(at_start $at)" = $((at * 1048576)) ] || fail "MiB $at begins with $(at_start $at)"
done
# Random bytes are zero once in 256 times.
used=$(in_use)
[ "$used" -gt $((SIZE_MIB * 1044000)) ] && [ "$used" -lt $((SIZE_MIB * 1045000)) ] || fail "$used bytes are not zero"
[ "$(left)" = "$before" ] || fail "there was $before and is $(left)"

step "after kill -9, restore"
experiment "fill = 0" '"sleep", "1000"' | grep -v "^precondition" >/tmp/sleep.toml
/host/pilotlab run /tmp/sleep.toml --i-may-overwrite $drive --out /tmp/sleep >/tmp/said 2>&1 &
pid=$!
sleeps() { [ -n "$(cat /sys/fs/cgroup/pilotlight-*/cgroup.procs)" ] && pidof sleep; }
within 30 "the workload in its cgroup" sleeps
kill -9 $pid
killall sleep
[ "$(cgroups)" = 1 ] || fail "something else than restore took the cgroup away"
expect "restore" /host/pilotlab restore
[ "$(left)" = "$before" ] || fail "there was $before and is $(left)"
