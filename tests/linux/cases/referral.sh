# A persistent discovery controller is notified of each change of the discovery log by SIGHUP: an added subsystem, a referral, a removed
# subsystem. A host of the removed one loses its device, and the kernel stops reconnecting at once.
MORE=nqn.2024-05.com.example:more
events() { grep -c NVME_AEN=0x70f002 /tmp/events; }
events_are() { [ "$(events)" = "$1" ]; }
log_has() { grep -q "$1" /tmp/expect.out || { cat /tmp/expect.out; fail "the log does not have: $1"; }; }
log_lacks() { if grep -q "$1" /tmp/expect.out; then cat /tmp/expect.out; fail "the log has: $1"; fi; }

step "a persistent discovery controller"
uevent sh -c 'env | grep NVME_ >>/tmp/events' &
expect "discover" nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --persistent --reconnect-delay=1 --keep-alive-tmo=5
log_has "subnqn: *$NQN"
log_lacks "subnqn: *$MORE"
log_lacks referral
is_live

step "another subsystem"
host serve none "$NQN" "$MORE"
within 20 "the first event" events_are 1
expect "discover" nvme discover --device=nvme0
log_has "subnqn: *$MORE"
expect "connect to it" nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$MORE" --reconnect-delay=1
within 10 "its namespace" any_namespace

step "a referral"
host serve 192.0.2.8 "$NQN" "$MORE"
within 20 "the second event" events_are 2
expect "discover" nvme discover --device=nvme0
log_has "subtype: *discovery subsystem referral"
log_has "traddr: *192.0.2.8"
log_has "trsvcid: *8009"

step "the subsystem goes"
# The kernel loses a connection, is refused when it retries, and stops (the shutdown of the removed controller fails too).
DMESG_ALLOW='starting error recovery|Reconnecting in|Removing|Connect|failed to connect queue|Failed reconnect attempt|receive failed|failed to send request|Property Set error'
host serve 192.0.2.8 "$NQN"
within 20 "the third event" events_are 3
expect "discover" nvme discover --device=nvme0
log_lacks "subnqn: *$MORE"
no_namespace() { ! any_namespace; }
within 30 "the end of its device" no_namespace
is_live
expect "disconnect" nvme disconnect -d nvme0
