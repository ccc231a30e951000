# In-band authentication (DH-HMAC-CHAP) with the kernel as host: one way and both ways, each hash function, the groups of DH_GROUPS and none (`null`), wrong and missing
# secrets, another host's, secrets replaced under a connection, authentication again. A kernel without it is refused cleanly.
HOST=$(cat /etc/nvme/hostnqn)
for module in dh_generic hmac sha256_generic sha512_generic nvme-auth; do modprobe -q "$module" || true; done

key() { nvme gen-dhchap-key --hmac="$1" --nqn="$HOST" 2>/dev/null | tail -n 1; }
connect() { nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$NQN" --reconnect-delay=1 --nr-io-queues=1 --ctrl-loss-tmo=0 "$@"; }
# Refusals are what is tested.
DMESG_ALLOW='authentication|Authentication|auth|failed to connect queue|Connect|error|Removing'

first=$(key 1)
case $first in DHHC-1:01:*) ;; *) fail "nvme gen-dhchap-key printed: $first" ;; esac
host secrets "$HOST" "$first"

step "without a secret"
refuse "connect without a secret" connect
case $(uname -r) in
  5.10.*|6.1.*)
    refuse "connect with a secret" connect --dhchap-secret="$first"
    return 0 ;;
esac

step "with another secret"
refuse "connect with another secret" connect --dhchap-secret="$(key 1)"

for hash in 1 2 3; do
  step "with the secret, hash function $hash"
  secret=$(key $hash)
  host secrets "$HOST" "$secret"
  expect "connect" connect --dhchap-secret="$secret"
  within 10 "its namespace" any_namespace
  wait_block "$NAMESPACE"
  expect "write and read" sh -c "dd if=/dev/zero of=$NAMESPACE bs=64k count=4 oflag=direct && dd if=$NAMESPACE of=/dev/null bs=64k count=4 iflag=direct"
  expect "disconnect" nvme disconnect -n "$NQN"
done

step "both ways"
controller=$(key 2)
host secrets "$HOST" "$first" "$controller"
expect "connect" connect --dhchap-secret="$first" --dhchap-ctrl-secret="$controller"
within 10 "its namespace" any_namespace
expect "disconnect" nvme disconnect -n "$NQN"
refuse "connect to a controller with another secret" connect --dhchap-secret="$first" --dhchap-ctrl-secret="$(key 2)"

step "secrets are replaced, the connection is kept"
expect "connect" connect --dhchap-secret="$first"
within 10 "its namespace" any_namespace
host secrets "$HOST" "$(key 1)"
expect "read" dd if="$NAMESPACE" of=/dev/null bs=64k count=4 iflag=direct
expect "disconnect" nvme disconnect -n "$NQN"
refuse "connect with the old secret" connect --dhchap-secret="$first"

step "another host, with a secret of its own and with the first host's"
other=nqn.2026-01.test:other own=$(nvme gen-dhchap-key --hmac=1 --nqn=nqn.2026-01.test:other 2>/dev/null | tail -n 1)
as_other() { connect --hostnqn="$other" --hostid=11111111-2222-4333-8444-555555555555 "$@"; }
host secrets "$HOST" "$first"
host also "$other" "$own"
refuse "connect as another host with the first host's secret" as_other --dhchap-secret="$first"
refuse "connect with the other host's secret" connect --dhchap-secret="$own"
expect "connect as another host" as_other --dhchap-secret="$own"
within 10 "its namespace" any_namespace
expect "disconnect" nvme disconnect -n "$NQN"

step "authentication again, with another secret"
host secrets "$HOST" "$first"
expect "connect" connect --dhchap-secret="$first"
within 10 "its namespace" any_namespace
second=$(key 1)
host secrets "$HOST" "$second"
host logged; position=$((REPLY + 1))
echo "$second" >"/sys/class/nvme/$(ls /sys/class/nvme | head -n 1)/dhchap_secret"
host logged $position "host authenticated again"
expect "read" dd if="$NAMESPACE" of=/dev/null bs=64k count=4 iflag=direct
expect "disconnect" nvme disconnect -n "$NQN"

# The server allows one group at a time. A power of a large one takes seconds in the guest.
host secrets "$HOST" "$first"
for group in null $DH_GROUPS; do
  step "group $group"
  host group "$group"
  expect "connect" connect --dhchap-secret="$first"
  within 10 "its namespace" any_namespace
  expect "read" dd if="$NAMESPACE" of=/dev/null bs=64k count=4 iflag=direct
  expect "disconnect" nvme disconnect -n "$NQN"
done
