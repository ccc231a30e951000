# A core that a power budget removes goes offline (--hotplug), and returns at the budget's end, and by `pilotlight restore` after kill -9. A
# thread that was pinned to it is pinned again, and a cpuset of version 1, if supported, has it again.
switch=/sys/devices/system/cpu/cpu1/online
cat >/tmp/machine.toml <<'TOML'
name = "made-up"
source = "this case"
cores = 2
[power.cpu_uw]
poll = 101_000_000
shallow = 1_000_000
deep = 1_000_000
TOML
list=
root=/sys/fs/cgroup/cpuset
mount -t tmpfs none /sys/fs/cgroup
mkdir $root
if mount -t cgroup -o cpuset none $root; then
  mkdir $root/job
  list=$root/job/cpuset.cpus
  echo 0-1 >$list
  cat $root/cpuset.mems >$root/job/cpuset.mems
else
  echo "no cpusets of version 1 in this kernel"
fi
taskset 2 sleep 1000 &
pinned=$!
[ -z "$list" ] || echo $pinned >$root/job/tasks
taskset -p 2 $pinned

affinity() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
cpuset() { if [ -n "$list" ]; then cat $list; else echo 0-1; fi; }
is_offline() { [ "$(cat $switch)" = 0 ]; }
is_online() { [ "$(cat $switch)" = 1 ]; }
is_pinned() { [ "$(affinity "$1")" = 1 ]; }
worker() {
  for thread in /proc/$server/task/*; do
    [ "$(cat $thread/comm)" != reactor-1 ] || echo "$server/task/${thread##*/}"
  done
}
as_before() { is_online && is_pinned $pinned && [ "$(cpuset)" = 0-1 ]; }
serve() {
  /host/pilotlight serve --listen 127.0.0.1:0 --namespace mem:16MiB --cores 0,1 --policy cpu-jailing \
    --sensor modelled:/tmp/machine.toml "$@" >/tmp/serve.log 2>&1 &
  server=$!
  within 40 "an answer of the server" /host/pilotlight status
}

step "without --hotplug the core only sleeps"
serve
expect "set budget" /host/pilotlight set budget 5W --no-wait
within 40 "a core that sleeps" sh -c '/host/pilotlight status | grep -E "^1 " | grep -v awake'
is_online || fail "the CPU is offline without permission"
kill $server
wait $server

step "with --hotplug it leaves, and comes back with the budget's end"
serve --hotplug
expect "set budget" /host/pilotlight set budget 5W --no-wait
within 40 "a CPU that leaves" is_offline
[ "$(affinity $pinned)" = 1 ] && echo "this kernel keeps the affinity of a thread whose CPU is gone"
expect "set budget off" /host/pilotlight set budget off
within 40 "the CPU, the cpuset and the thread as before" as_before
within 10 "the reactor on its core" is_pinned "$(worker)"

step "kill -9, and restore"
expect "set budget" /host/pilotlight set budget 5W --no-wait
within 40 "a CPU that leaves" is_offline
kill -9 $server
wait $server || true
is_offline || fail "something else than restore brought the CPU back"
expect "restore" /host/pilotlight restore
cat /tmp/expect.out
as_before || fail "CPU $(cat $switch), cpuset $(cpuset), thread on $(affinity $pinned)"
[ -z "$(ls /run/pilotlight/changes)" ] || fail "a journal is left"
kill $pinned
