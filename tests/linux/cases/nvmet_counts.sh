# Counts of Linux's target per request: runs of its kernel worker, wake-ups, context switches, interrupts, and the processor that handles
# the drive's interrupts. Counts, not times: times of an emulated machine are meaningless.
#
# The guest's kernel counts everything in a window of WINDOW_S seconds during the load: /proc/stat, /proc/interrupts, /proc/softirqs, and
# histograms of trace events. `pilotlight load` runs outside.
DMESG_ALLOW='Ignoring bogus Namespace Identifiers'
wait_block /dev/nvme0n1
wait_block /dev/nvme1n1
modprobe nvmet-tcp
mkdir -p /cfg
mount -t configfs configfs /cfg
mount -t tracefs tracefs /sys/kernel/tracing
events=/sys/kernel/tracing/events

serial_device() { basename "$(dirname "$(grep -l "^$1 *$" /sys/class/nvme/nvme*/serial)")"; }
OWN=$(serial_device own) SHARED=$(serial_device shared)
port=/cfg/nvmet/ports/1
mkdir $port
echo tcp >$port/addr_trtype
echo ipv4 >$port/addr_adrfam
echo "$GUEST_ADDRESS" >$port/addr_traddr
echo "$PORT" >$port/addr_trsvcid
for name in own shared; do
  s=/cfg/nvmet/subsystems/$NQN:$name
  mkdir -p "$s/namespaces/1"
  echo 1 >"$s/attr_allow_any_host"
  if [ $name = own ]; then echo "/dev/${OWN}n1"; else echo "/dev/${SHARED}n1"; fi >"$s/namespaces/1/device_path"
  echo 1 >"$s/namespaces/1/enable"
  ln -s "$s" "$port/subsystems/$NQN:$name"
done

hist() { echo "hist:keys=$2:size=512" >"$events/$1/trigger" || fail "no histogram of $1"; }
hist workqueue/workqueue_execute_start function.sym,common_cpu
hist sched/sched_wakeup comm,target_cpu
hist sched/sched_switch next_comm,common_cpu
hist nvmet/nvmet_req_init common_cpu
hist nvmet/nvmet_req_complete common_cpu

# raw FOLDER: all counters in the kernel's format; with few processes, because their switches are counted as well. Each file is read at the
# same position of both snapshots, so that each has a window of the same length.
raw() {
  mkdir -p "$1"
  read -r uptime _ </proc/uptime
  echo "$uptime" >"$1/uptime"
  for event in workqueue_execute_start sched_wakeup sched_switch nvmet_req_init nvmet_req_complete; do
    cat "$events"/*/$event/hist >"$1/$event"
  done
  cat /proc/[0-9]*/status >"$1/threads" 2>/dev/null || true
  cat /proc/softirqs >"$1/softirqs"
  cat /proc/interrupts >"$1/interrupts"
  cat /proc/stat >"$1/stat"
}

# histogram FILE NAME: lines `NAME.KEY.PROCESSOR COUNT`.
histogram() {
  sed -n 's/^{ *//; s/ *} hitcount: */ = /p' "$1" | awk -F' = ' -v name="$2" '{
    keys = split($1, part, ","); cpu = part[keys]; sub(/.*: */, "", cpu); gsub(/ /, "", cpu)
    key = ""
    if (keys > 1) { key = part[1]; sub(/^[a-z_.]*: */, "", key); sub(/^\[[0-9a-f]*\] */, "", key); sub(/ .*/, "", key); key = "." key }
    print name key "." cpu, $2
  }'
}
# counters FOLDER: one line for each.
counters() {
  echo "uptime $(cat "$1/uptime")"
  histogram "$1/nvmet_req_init" init
  histogram "$1/nvmet_req_complete" complete
  histogram "$1/workqueue_execute_start" work
  histogram "$1/sched_wakeup" wake
  histogram "$1/sched_switch" run
  awk '/^ctxt/ { print "ctxt", $2 }' "$1/stat"
  awk 'NR > 1 { sub(/:/, "", $1); for (cpu = 0; cpu < 2; cpu++) print "softirq." $1 "." cpu, $(2 + cpu) }' "$1/softirqs"
  awk 'NR > 1 && NF > 2 { sub(/:/, "", $1); name = ($1 ~ /^[0-9]/) ? $NF : $1; for (cpu = 0; cpu < 2; cpu++) print "irq." name "." cpu, $(2 + cpu) }' "$1/interrupts"
  awk '/^Name:/ { worker = ($2 ~ /^kworker\/[0-9]*:[0-9]*H/) } worker && /ctxt_switches/ { sub(/:/, "", $1); sum[$1] += $2 }
    END { for (key in sum) print "thread." key, sum[key] }' "$1/threads"
}

# count LABEL DRIVE: counts of a window, as a row of each table. Idle: counts per second.
count() {
  raw /tmp/before
  sleep "$WINDOW_S"
  raw /tmp/after
  counters /tmp/before >/tmp/counters.before
  counters /tmp/after >/tmp/counters.after
  awk -v label="$1" -v drive="$2" '
    function sum(pattern,    key, total) { total = 0; for (key in d) if (key ~ pattern) total += d[key]; return total }
    function each(pattern) { return sprintf(" %.2f |", sum(pattern) / n) }
    function shares(name,    all) { all = d[name ".0"] + d[name ".1"]; return all ? sprintf(" %.0f : %.0f |", 100 * d[name ".0"] / all, 100 * d[name ".1"] / all) : " |" }
    NR == FNR { before[$1] = $2; next }
    { d[$1] = $2 - before[$1] }
    END {
      requests = sum("^complete[.]"); work = sum("^work[.]nvmet_tcp_io_work[.]")
      n = requests ? requests : d["uptime"]
      head = sprintf("| %s | %d | %.0f |", label, requests, requests / d["uptime"])
      print "1", head (requests ? sprintf(" %.2f | %.2f |", work / n, n / work) : " | |") each("^wake[.]kworker/[01]:[0-9]*H[.]") each("^run[.]kworker/[01]:[0-9]*H[.]") \
        each("^thread[.]voluntary") each("^thread[.]nonvoluntary") each("^run[.]swapper") each("^run[.]ksoftirqd") each("^ctxt$") shares("work.nvmet_tcp_io_work")
      print "2", head each("^irq[.]virtio.*-input") each("^irq[.]virtio.*-output") each("^softirq[.]NET_RX[.]") each("^irq[.]" drive "q") each("^irq[.](RES|CAL)[.]") \
        shares("softirq.NET_RX") shares("work.nvmet_tcp_io_work") shares("complete")
    }' /tmp/counters.before /tmp/counters.after >/tmp/rows
  cat /tmp/rows
  cat /tmp/rows >>/tmp/table
}
# under LABEL SUBSYSTEM DRIVE OPTION...: counts under that load.
under() {
  local label=$1 subsystem=$2 drive=$3
  shift 3
  host load "$subsystem" "$@"
  sleep 3
  count "$label" "$drive"
  host stop
  sleep 1
}

# The network card interrupts processor NET; the drive with one queue interrupts the one chosen by the kernel.
net_irqs=$(awk '/virtio.*-(in|out)put/ { sub(/:/, "", $1); print $1 }' /proc/interrupts)
network_to() { for irq in $net_irqs; do echo "$1" >"/proc/irq/$irq/smp_affinity_list"; done; }
shared_irq=$(awk -v name="${SHARED}q1" '$NF == name { sub(/:/, "", $1); print $1 }' /proc/interrupts)
step "last-level cache shared by $(cat /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list 2>/dev/null || echo unknown); idle driver $(cat /sys/devices/system/cpu/cpuidle/current_driver 2>/dev/null)"
cat /proc/interrupts

loads() {
  under "$1, 100/s" "$2" "$3" --rate_iops 100
  under "$1, 1000/s" "$2" "$3" --rate_iops 1000
  under "$1, depth 1" "$2" "$3" --iodepth 1
  under "$1, depth 4" "$2" "$3" --iodepth 4
  under "$1, depth 32" "$2" "$3" --iodepth 32
}
: >/tmp/table
network_to 0
count idle none
loads "own queue" own "$OWN"
under "own queue, 4 connections of depth 8" own "$OWN" --iodepth 8 --numjobs 4
taker=$(cat "/proc/irq/$shared_irq/effective_affinity_list")
step "the one queue of the drive 'shared' interrupts processor $taker"
network_to "$((1 - taker))"
loads "shared queue" shared "$SHARED"

# table NUMBER COLUMN...: of the worker, or of interrupts.
table() {
  local number=$1 line='|---|---:|---:|' head='| load | requests | requests/s |'
  shift
  for column; do head="$head $column |" line="$line---:|"; done
  printf '\n%s\n%s\n' "$head" "$line"
  sed -n "s/^$number //p" /tmp/table
}
table 1 'io_work runs' 'requests/io_work run' 'worker wake-ups' 'switches to the worker' 'its voluntary switches' 'its involuntary switches' \
  'switches to idle' 'switches to ksoftirqd' 'context switches' 'io_work on CPU 0 : 1, %'
table 2 'receive interrupts' 'transmit interrupts' 'NET_RX softirqs' 'drive interrupts' 'inter-processor interrupts' 'NET_RX on CPU 0 : 1, %' \
  'io_work on CPU 0 : 1, %' 'completed on CPU 0 : 1, %'
echo
