# A persistent discovery controller is kept, reconnects after the server restarts with another subsystem, and reports the change.
MORE=nqn.2024-05.com.example:more
step "a persistent discovery controller"
uevent sh -c 'env | grep NVME_ >>/tmp/events' &
expect "discover" nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --persistent --reconnect-delay=1 --keep-alive-tmo=5
grep -q "subnqn: *$NQN" /tmp/expect.out || { cat /tmp/expect.out; fail "the log does not have $NQN"; }
if grep -q "subnqn: *$MORE" /tmp/expect.out; then fail "the log has $MORE already"; fi
test -c /dev/nvme0
is_live

step "another subsystem"
# This case restarts the server.
DMESG_ALLOW='failed nvme_keep_alive|starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|receive failed|reading non-mdts|failed to send request'
host serve "$NQN" "$MORE"
within 20 "the kernel's word to look again, once it is back" grep -q NVME_EVENT=rediscover /tmp/events
is_live
expect "discover" nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --device=nvme0
grep -q "subnqn: *$MORE" /tmp/expect.out || { cat /tmp/expect.out; fail "the log does not have $MORE"; }
expect "connect to it" nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$MORE"
within 10 "its namespace" any_namespace
expect "disconnect" nvme disconnect -n "$MORE"
expect "disconnect" nvme disconnect -d nvme0
