# Two servers of one disk, active and passive, are two paths of one block device. Under verified load the active one is killed, and another time
# stopped, fenced, taken over from, and continued. No request fails, and nothing that the continued server writes reaches the disk.
OPTIONS="--reconnect-delay=1 --ctrl-loss-tmo=600 --keep-alive-tmo=5"
DMESG_ALLOW='starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|receive failed|failed to send request|failed nvme_keep_alive|keep_?alive|reading non-mdts|Connect command failed|failed to connect queue|Property Set error|Property Get error|Removing|no usable path|failed to receive icresp|I/O .*timeout|timeout'
. /case/paths.sh

now() { cut -d' ' -f1 /proc/uptime; }
# taken SECONDS: prints how long ago that was.
taken() { awk -v since="$1" '{ printf "%.1f s", $1 - since }' /proc/uptime; }

# waiting PORT N: at least N requests are in progress on this path.
waiting() { path "$1" && [ "$(awk '{ print $9 }' "$PATH_/stat")" -ge "$2" ]; }

step "two servers, the second one passive"
host activate a
connect $OPTIONS
expect "connect the second" nvme connect -t tcp -a "$ADDRESS" -s "$SECOND_PORT" -n "$NQN" $OPTIONS
within 20 "the first path" path_is "$PORT" optimized
within 20 "the second path" path_is "$SECOND_PORT" inaccessible
blockcheck load /dev/nvme0n1 --blocks 2048 --threads 16 --seconds 900 --until /tmp/stop >/tmp/load 2>&1 &
load=$!
carries "$PORT" "$SECOND_PORT"

step "the active one is killed"
begin=$(now)
host kill a
host activate b
within 30 "the second path" path_is "$SECOND_PORT" optimized
carries "$SECOND_PORT"
step "requests by the other one after $(taken "$begin")"
host start a
within 60 "the first path" path_is "$PORT" inaccessible
carries "$SECOND_PORT" "$PORT"

step "the active one is stopped and fenced"
begin=$(now)
host stop b
within 10 "requests that wait for the stopped server" waiting "$SECOND_PORT" 8
host fence b
host activate a
within 60 "the first path" path_is "$PORT" optimized
carries "$PORT"
step "requests by the other one after $(taken "$begin")"
host continue b
for _ in 1 2 3 4 5; do carries "$PORT"; sleep 1; done
controller_is "$SECOND_PORT" live && fail "the fenced server serves"
touch /tmp/stop
wait $load || { cat /tmp/load; fail "the load was disturbed"; }
cat /tmp/load
host errors b
step "failed requests of the continued server to the disk: $REPLY"
[ "$REPLY" -gt 0 ] || fail "the continued server wrote nothing: the fence was not needed"
expect "disconnect" nvme disconnect-all
