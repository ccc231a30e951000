# NVMe/TCP with TLS and the kernel as host: tlshd makes the handshake, the kernel encrypts. Each hash function and identity, wrong keys, a
# listener without TLS, discovery, DH-HMAC-CHAP within TLS, a KeyUpdate, removed and replaced keys. A kernel without TLS is refused cleanly.
. /case/tls.sh
for module in dh_generic hmac sha256_generic sha512_generic nvme-auth; do
  modprobe -q "$module" || true
done
# Refusals are what is tested.
DMESG_ALLOW='TLS handshake|no valid PSK|failed to connect queue|failed to receive icresp|bad type returned 0|Connect for subsystem|uthentication|starting error recovery|Reconnecting in|Successfully reconnected|receive failed'

connect() { nvme connect -t tcp -a "$ADDRESS" -n "$NQN" --nr-io-queues=1 --ctrl-loss-tmo=0 "$@"; }
connect_tls() { connect -s "$TLS_PORT" --tls "$@"; }

log_position() { host logged; POSITION=$((REPLY + 1)); }

# Reads what it has written, past the page cache, and compares.
verify() {
  within 10 "its namespace" any_namespace
  wait_block "$NAMESPACE"
  random_file /tmp/random 1024
  expect "write" dd if=/tmp/random of="$NAMESPACE" bs=64k oflag=direct
  expect "read" dd if="$NAMESPACE" of=/tmp/read bs=64k count=16 iflag=direct
  expect "compare" cmp /tmp/random /tmp/read
}

step "a host without TLS at the listener with TLS"
first=$(key 1)
case $first in NVMeTLSkey-1:01:*) ;; *) fail "nvme gen-tls-key printed: $first" ;; esac
host secrets "$HOST" "$first"
log_position
refuse "connect without TLS" connect -s "$TLS_PORT"
host logged $POSITION "plain NVMe/TCP"
log_position
refuse "connect without TLS to the listener without TLS, with a key of TLS on the server" connect -s "$PORT"
host logged $POSITION "TLS"

case $(uname -r) in
  5.10.*|6.1.*)
    refuse "connect with TLS" connect_tls
    return 0 ;;
esac

on_failure /tmp/tlshd.log
start_tlshd

step "without a key"
refuse "connect without a key" connect_tls

step "with another key"
insert "$(key 1)" 0
log_position
refuse "connect with another key" connect_tls
host logged $POSITION "the client has another key for its identity"
remove_keys
insert "$(key 1)" 1
log_position
refuse "connect with another key" connect_tls
host logged $POSITION "no pre-shared key is configured for identity"
remove_keys

for identity in 0 1; do
  step "SHA-256, identity of version $identity"
  insert "$first" $identity
  expect "connect" connect_tls
  verify
  grep -q 'AES-128-GCM' /tmp/tlshd.log || fail "another cipher suite"
  expect "disconnect" nvme disconnect -n "$NQN"
  remove_keys
done

for identity in 0 1; do
  step "SHA-384, identity of version $identity"
  long=$(key 2)
  host secrets "$HOST" "$long"
  insert "$long" $identity
  log_position
  if [ "$OLD" = true ]; then
    # GnuTLS before 3.8.11 computes a binder with SHA-256.
    refuse "connect with a key of SHA-384" connect_tls
    host logged $POSITION "as GnuTLS before 3.8.11 does with SHA-384"
  else
    expect "connect" connect_tls
    verify
    grep -q 'AES-256-GCM' /tmp/tlshd.log || fail "another cipher suite"
    expect "disconnect" nvme disconnect -n "$NQN"
  fi
  remove_keys
done

step "derivation of keys"
host secrets "$HOST" "$first"
insert "$first" 1
if [ "$OLD" = true ]; then
  host accept_old false
  log_position
  refuse "connect with a key by old libnvme" connect_tls
  host logged $POSITION "accept_old_libnvme"
  host accept_old true
fi

step "TLS at the listener without TLS"
refuse "connect with TLS" connect -s "$PORT" --tls

step "discovery"
expect "discover" nvme discover -t tcp -a "$ADDRESS" -s "$PORT"
cp /tmp/expect.out /tmp/log
grep -qE 'sectype: +tls13' /tmp/log || { cat /tmp/log; fail "the discovery log has no entry with TLS"; }
grep -qE 'sectype: +none' /tmp/log || { cat /tmp/log; fail "the discovery log has no entry without TLS"; }
insert "$first" 1 nqn.2014-08.org.nvmexpress.discovery
expect "discover with TLS" nvme discover -t tcp -a "$ADDRESS" -s "$TLS_PORT" --tls
grep -qE 'sectype: +tls13' /tmp/expect.out || { cat /tmp/expect.out; fail "the discovery log over TLS has no entry with TLS"; }

step "a key of another subsystem"
remove_keys
insert "$first" 1 nqn.2014-08.org.nvmexpress:another
refuse "connect with a key of another subsystem" connect_tls
remove_keys
insert "$first" 1

step "DH-HMAC-CHAP within TLS"
secret=$(nvme gen-dhchap-key --hmac=1 --nqn="$HOST" 2>/dev/null | tail -n 1)
host secrets "$HOST" "$first" "$secret"
refuse "connect without the secret" connect_tls
expect "connect with the secret" connect_tls --dhchap-secret="$secret"
verify
expect "disconnect" nvme disconnect -n "$NQN"

# The kernel takes the KeyUpdate for an error. Requests in flight wait and are sent again.
update_keys() {
  [ "$KEY_UPDATES" = yes ] || { step "SKIPPED a KeyUpdate: the program has no debug assertions"; return; }
  step "a KeyUpdate under verified load"
  host secrets "$HOST" "$first"
  expect "connect" connect_tls --reconnect-delay=1 --ctrl-loss-tmo=60
  within 10 "its namespace" any_namespace
  wait_block "$NAMESPACE"
  expect "verified load" fio --name=verify --filename="$NAMESPACE" --size=8m --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw --bs=4k \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --loops=3 --thread
  within 25 "connected again" is_live
  dmesg | grep -q 'Successfully reconnected' || fail "no KeyUpdate ended the connection"
  expect "disconnect" nvme disconnect -n "$NQN"
}
update_keys

step "a key is replaced, the connection is kept"
host secrets "$HOST" "$first"
expect "connect" connect_tls
verify
host secrets "$HOST" "$(key 1)"
verify
expect "disconnect" nvme disconnect -n "$NQN"
refuse "connect with the old key" connect_tls
