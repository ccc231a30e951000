# A CPU quota of the worker core for a power budget, in cgroups of version 2, with modelled power; after kill -9 the next start removes it
# completely. First in the root cgroup, then in a separate one, as systemd creates for a service. The budget is so low that the quota must
# reach its minimum: an emulated processor loses ticks, so modelled power is too low by an unknown amount.
root=/sys/fs/cgroup
mount -t cgroup2 none $root
cat >/tmp/machine.toml <<'TOML'
name = "made-up"
source = "this case"
cores = 2
[power.cpu_uw]
poll = 101_000_000
shallow = 1_000_000
deep = 1_000_000
TOML

# serve GROUP POLICY [OPTION...]: starts it there, waits until it responds, and sets $server to its PID.
serve() {
  local folder=$1 policy=$2
  shift 2
  sh -c 'echo $$ >"$0/cgroup.procs" && exec /host/pilotlight serve --listen 127.0.0.1:4420 --namespace mem:16MiB --cores 0,1 "$@"' \
    "$folder" --policy "$policy" "$@" >/tmp/serve.log 2>&1 &
  server=$!
  within 40 "an answer of the server" /host/pilotlight status
}
group() { ls -d "$1"/pilotlight-workers-* 2>/dev/null; }
quota() { cut -d' ' -f1 "$(group "$1")/cpu.max"; }
is_capped() { [ -n "$(group "$1")" ] && [ "$(quota "$1")" = 1000 ]; }
# The server writes the quota before it moves the thread: one thread, the worker's.
has_the_worker() { [ "$(cat "/proc/$server/task/$(cat "$(group "$1")/cgroup.threads")/comm")" = reactor-1 ]; }
throttled() { sed -n 's/^nr_throttled //p' "$(group "$1")/cpu.stat"; }
is_throttled_more_than() { [ "$(throttled "$1")" -gt "$2" ]; }
is_gone() { [ -z "$(group "$1")" ]; }
is_lifted() { [ "$(quota "$1")" = max ]; }
# State that a killed server must not leave: groups, and controllers that were not enabled before.
settings() { echo "$(cat "$1/cgroup.subtree_control") $(group "$1" | wc -l) $(cat "$1/cgroup.type" 2>/dev/null)"; }

budget_in() {
  local folder=$1 before
  before=$(settings "$folder")
  serve "$folder" cpu-bandwidth --policy-set domain=cpu --sensor modelled:/tmp/machine.toml
  expect "set budget" /host/pilotlight set budget 5W --no-wait
  cat /tmp/expect.out
  grep -q 'held by policy cpu-bandwidth' /tmp/expect.out || fail "the policy does not hold it"
  grep -q 'modelled, profile made-up' /tmp/expect.out || fail "the output does not say that watts are modelled"
  within 40 "a quota" is_capped "$folder"
  within 40 "the worker alone in the group" has_the_worker "$folder"
  # A worker without requests rests, and uses none of its quota.
  /host/pilotlight load --numjobs 4 --iodepth 4 --runtime 600s >/tmp/load.log 2>&1 &
  load=$!
  within 40 "a worker that the kernel holds up" is_throttled_more_than "$folder" "$(throttled "$folder")"
  kill $load || { cat /tmp/load.log; fail "the load has ended"; }
  wait $load || true
  /host/pilotlight status | grep -E '^(budget|power|policy)'
  expect "set budget off" /host/pilotlight set budget off
  within 40 "a lifted quota" is_lifted "$folder"
  expect "set budget" /host/pilotlight set budget 5W --no-wait
  within 40 "a quota" is_capped "$folder"

  step "kill -9"
  kill -9 $server
  wait $server || true
  [ -n "$(group "$folder")" ] || fail "something else than the next start removed the group"
  serve "$folder" static --sensor modelled:/tmp/machine.toml
  grep -q 'left behind by a process that was killed' /tmp/serve.log || { cat /tmp/serve.log; fail "the log has no such message"; }
  [ "$(settings "$folder" | sed 's/domain threaded/domain/')" = "$before" ] || fail "settings were $before and are $(settings "$folder")"
  expect "set budget" /host/pilotlight set budget 5W --no-wait
  grep -q 'held by policy cpu-bandwidth, inner policy static' /tmp/expect.out || fail "the output does not name the policy of the budget"
  expect "set budget off" /host/pilotlight set budget off
  within 40 "the end of the quota" is_gone "$folder"
  kill $server
  wait $server

  step "kill -9, and restore as a unit's ExecStopPost runs it"
  serve "$folder" cpu-bandwidth --policy-set domain=cpu --sensor modelled:/tmp/machine.toml
  expect "set budget" /host/pilotlight set budget 5W --no-wait
  within 40 "a quota" is_capped "$folder"
  kill -9 $server
  wait $server || true
  [ -n "$(group "$folder")" ] || fail "something else than restore removed the group"
  expect "restore" /host/pilotlight restore
  [ "$(settings "$folder" | sed 's/domain threaded/domain/')" = "$before" ] || fail "settings were $before and are $(settings "$folder")"
}

step "in the root cgroup"
budget_in $root
step "in a separate cgroup"
echo +cpu >$root/cgroup.subtree_control
mkdir $root/service
budget_in $root/service
[ -z "$(ls /run/pilotlight/changes)" ] || fail "a journal is left"
