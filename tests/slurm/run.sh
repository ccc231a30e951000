#!/usr/bin/env bash
# Runs a figure of SANDMAN as an array job of Slurm (one node, own configuration), kills two tasks, merges, and compares bytes with one run.
#
#     tests/slurm/run.sh [PROGRAM]    PROGRAM: default target/debug/pilotlab
#
# Exits with 77 and the reason if it cannot run. Installs Debian's slurm-wlm if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() { echo "SKIPPED: $1"; exit 77; }
fail() { echo "FAILED: $1" >&2; tail -n 20 "$dir"/*.log "$out"/logs/* >&2 || true; exit 1; }

program=$(realpath "${1:-target/debug/pilotlab}")
[[ -x $program ]] || skip "$program does not exist: cargo build -p pilotlab"
[[ $(id -u) == 0 ]] || skip 'requires root, for the daemons of Slurm'
if ! command -v slurmctld slurmd munged sbatch >/dev/null; then
  command -v apt-get >/dev/null || skip 'Slurm is not installed, and there is no apt-get'
  { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends slurm-wlm munge; } ||
    skip 'Debian packages slurm-wlm and munge cannot be installed'
fi

dir=$(mktemp -d /tmp/pilotlab-slurm.XXXXXX)
out=$dir/out
export SLURM_CONF=$dir/slurm.conf
daemons=()
finish() {
  scancel --user root 2>/dev/null || true
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  rm -rf "$dir"
}
trap finish EXIT

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "timed out: $*"
    sleep 0.1 # between two looks at the condition
  done
}

# Two free ports.
read -r control_port node_port < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))')

node=$(hostname -s)
mkdir "$dir"/{state,spool}
# Eight CPUs are declared whatever the machine has, so that all tasks run at once. A requeued job waits for `cred_expire`.
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort=$control_port
SlurmdPort=$node_port
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=$node NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF

head -c 1024 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
chmod 755 "$dir"
munged --force --foreground --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
  --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" >"$dir/munged.out" 2>&1 &
daemons+=($!)
wait_for 10 test -S "$dir/munge.socket"
slurmctld -D >"$dir/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -N "$node" >"$dir/slurmd.log" 2>&1 &
daemons+=($!)
is_idle() { [[ $(sinfo --noheader --format %t) == idle ]]; }
wait_for 30 is_idle

# About 20 s of CPU time.
experiment=(papers/sandman/fig3.toml --smoke --set 'parameter.rate.values=[[10_000, "6s"], [640_000, "2.5s"]]' --repeats 6)
"$program" run "${experiment[@]}" --out "$dir/whole" >/dev/null

submitted=$("$program" submit slurm "${experiment[@]}" --tasks 8 --out "$out")
echo "$submitted"
job=$(sed -n 's/^job \([0-9]*\): 8 tasks.*/\1/p' <<<"$submitted")
merge=$(sed -n 's/^job \([0-9]*\) merges.*/\1/p' <<<"$submitted")

field() { scontrol --oneliner show job "$1" | grep -o " $2=[^ ]*" | cut -d= -f2; }
stored() { grep -q ,saturated, "$out/shard-$1/fig3/values.csv"; }
restarted() { [[ $(field "$1" Restarts) == 1 ]]; }

# Task 2 is preempted; the program of task 5 is killed. Both have stored runs, and neither has finished.
for task in 2 5; do wait_for 30 stored "$task"; done
scontrol requeue "${job}_2"
pid=$(pgrep --full -- "--shard 5/8 --out $out/")
kill -9 "$pid"
for task in 2 5; do
  [[ ! -e $out/shard-$task/fig3/values.csv.zst ]] || fail "task $task had finished before it was killed"
done
for task in 2 5; do wait_for 30 restarted "${job}_$task"; done
kept=$(grep -c ,saturated, "$out/shard-5/fig3/values.csv")

merged() { [[ $(field "$merge" JobState) == COMPLETED ]]; }
wait_for 100 merged
for task in 1 2 3 4 5 6 7 8; do
  [[ $(field "${job}_$task" JobState) == COMPLETED ]] || fail "task $task has not completed"
  [[ -e $out/logs/${job}_$task.log ]] || fail "task $task has no log"
done
diff --recursive --exclude '.*' "$dir/whole/fig3" "$out/results/fig3" || fail 'the merged results differ from those of one run'
echo "two of eight tasks killed and requeued ($kept runs of task 5 kept); the merged results have the bytes of one run"
