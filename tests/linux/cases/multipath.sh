# Two addresses of a server are two paths of one block device. Under verified load paths are closed, opened, preferred, removed and added, with
# each I/O policy of the kernel, and no request fails.
FIRST=$ADDRESS:$PORT SECOND=$ADDRESS:$SECOND_PORT
SUBSYSTEM=/sys/class/nvme-subsystem/nvme-subsys0
OPTIONS="--reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5"
# Removed addresses: the kernel has lost its controller, retries, and is refused.
DMESG_ALLOW='starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|receive failed|failed to send request|failed nvme_keep_alive|reading non-mdts|Connect Invalid|Connect command failed|failed to connect queue|Removing|Property Set error|Property Get error'

OLD_KERNEL=no # before 6.10: without queue-depth, and a refused controller connects again
case $(uname -r) in 5.* | 6.[0-9].*) OLD_KERNEL=yes ;; esac

# 127.0.0.0/8 is that of the outer machine.
ip addr flush dev lo
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
ip route add 127.0.0.0/8 via "$GATEWAY" dev eth0 src "$GUEST_ADDRESS"

. /case/paths.sh
# refused PORT BEFORE: the kernel has removed the controller that is refused; older ones go on, and have reported more refusals than BEFORE.
refused() { if [ $OLD_KERNEL = yes ]; then [ "$(refusals)" -gt "$2" ]; else ! controller "$1"; fi; }
refusals() { dmesg | grep -c 'Connect Invalid' || true; }
# both: each path has requests, unless the policy uses one alone.
both() {
  within 10 "the first path" path_is "$PORT" optimized
  within 10 "the second path" path_is "$SECOND_PORT" optimized
  [ "$policy" = numa ] || { carries "$PORT"; carries "$SECOND_PORT"; }
  loaded
}

step "two paths, the second by connect-all"
connect $OPTIONS
path_is "$PORT" optimized || fail "the path is $(cat "$PATH_/ana_state")"
expect "connect-all" nvme connect-all -t tcp -a "$ADDRESS" -s "$PORT" --persistent $OPTIONS
within 15 "the second path" path_is "$SECOND_PORT" optimized
# As the udev rule of nvme-cli does.
export ADDRESS PORT OPTIONS
uevent sh -c '[ "${NVME_AEN:-}" = 0x70f002 ] && nvme connect-all -t tcp -a $ADDRESS -s $PORT $OPTIONS' >/tmp/uevent 2>&1 &
[ "$(ls /dev/nvme*n*)" = /dev/nvme0n1 ] || fail "block devices: $(ls /dev/nvme*n*)"
expect "list-subsys" nvme list-subsys /dev/nvme0n1
[ "$(grep -c 'live optimized' /tmp/expect.out)" = 2 ] || { cat /tmp/expect.out; fail "not two paths"; }
expect "ana-log" nvme ana-log /dev/nvme0
grep -qi 'optimized' /tmp/expect.out || { cat /tmp/expect.out; fail "the log does not have the state"; }
[ "$(cat "$PATH_/ana_grpid")" = 1 ] || fail "the group is $(cat "$PATH_/ana_grpid")"

blockcheck load /dev/nvme0n1 --blocks 2048 --threads 4 --seconds 900 --until /tmp/stop >/tmp/load 2>&1 &
load=$!

policies=0
for policy in numa round-robin queue-depth; do
  if ! echo $policy >$SUBSYSTEM/iopolicy 2>/dev/null; then
    step "this kernel does not know $policy"
    continue
  fi
  [ "$(cat $SUBSYSTEM/iopolicy)" = $policy ] || fail "the policy is $(cat $SUBSYSTEM/iopolicy)"
  policies=$((policies + 1))
  step "$policy: drain and restore"
  both
  host drain "$FIRST"
  within 10 "the closed path" path_is "$PORT" inaccessible
  carries "$SECOND_PORT" "$PORT"
  host ask path restore "$FIRST"
  both
  host drain "$SECOND"
  within 10 "the closed path" path_is "$SECOND_PORT" inaccessible
  carries "$PORT" "$SECOND_PORT"
  host ask path restore "$SECOND"
  both

  step "$policy: a preferred path"
  host ask path set "$FIRST" non-optimized
  within 10 "the other state" path_is "$PORT" non-optimized
  carries "$SECOND_PORT" "$PORT"
  host ask path restore "$FIRST"
  both

  step "$policy: an address goes and comes back"
  host ask listener remove "$SECOND"
  within 20 "the loss of its controller" controller_is "$SECOND_PORT" connecting
  carries "$PORT"
  host ask listener add "$SECOND"
  both
  host drain "$SECOND"
  host ask listener remove "$SECOND"
  within 20 "the loss of its controller" controller_is "$SECOND_PORT" connecting
  host ask listener add "$SECOND" # as configured: optimized
  both

  step "$policy: the subsystem is offered on one address"
  before=$(refusals)
  host ask subsystem listen "$NQN" "$FIRST"
  within 20 "the refusal of the other controller" refused "$SECOND_PORT" "$before"
  carries "$PORT"
  host ask subsystem listen "$NQN" --all
  within 20 "the second path, by the event" path_is "$SECOND_PORT" optimized
  both
done
[ $policies = 3 ] || [ $OLD_KERNEL.$policies = yes.2 ] || fail "the kernel knows $policies policies"
dmesg | grep -E 'no (usable|available) path|failing I/O|I/O failed' && fail "requests had no path (lines above)"

step "states that change faster than the host reads them"
host toggle "$FIRST" "$SECOND"
both
touch /tmp/stop
wait $load || { cat /tmp/load; fail "the load was disturbed"; }
cat /tmp/load
expect "disconnect" nvme disconnect-all
within 10 "the end of the device" test ! -e /dev/nvme0n1
