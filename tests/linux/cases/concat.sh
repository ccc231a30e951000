# Secure channel concatenation with the kernel as host (6.15 and newer): it authenticates, and connects again with TLS and the generated key.
# One way and both ways, each hash function of TLS, another secret, no request, a reset, another key. Older kernels are refused.
. /case/tls.sh
for module in dh_generic hmac sha256_generic sha512_generic nvme-auth; do modprobe -q "$module" || true; done
# Refusals are what is tested.
DMESG_ALLOW='TLS handshake|no valid PSK|failed to connect queue|Connect for subsystem|uthentication|auth|error|Removing|bad type|resetting controller|concatenation is not supported'

secret() { nvme gen-dhchap-key --hmac="$1" --nqn="$HOST" 2>/dev/null | tail -n 1; }
connect() { nvme connect -t tcp -a "$ADDRESS" -s "$CONCAT_PORT" -n "$NQN" --nr-io-queues=1 --ctrl-loss-tmo=0 "$@"; }
concat() { connect --concat "$@"; }

# Reads what it has written, past the page cache, and compares.
verify() {
  within 10 "its namespace" any_namespace
  wait_block "$NAMESPACE"
  random_file /tmp/random 1024
  expect "write" dd if=/tmp/random of="$NAMESPACE" bs=64k oflag=direct
  expect "read" dd if="$NAMESPACE" of=/tmp/read bs=64k count=16 iflag=direct
  expect "compare" cmp /tmp/random /tmp/read
}

first=$(secret 1)
host secrets "$HOST" "$first"
case $(uname -r) in
  5.10.*|6.1.*|6.12.*)
    refuse "connect with concatenation" concat --dhchap-secret="$first"
    return 0 ;;
esac
on_failure /tmp/tlshd.log
start_tlshd

step "without concatenation, and with it where there is none"
refuse "connect without concatenation" connect --dhchap-secret="$first"
refuse "concatenation at another address" nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$NQN" --concat --dhchap-secret="$first" --ctrl-loss-tmo=0

step "another secret"
refuse "connect with another secret" concat --dhchap-secret="$(secret 1)"

for hash in sha256:AES-128-GCM sha384:AES-256-GCM; do
  step "${hash%:*}"
  host hash "${hash%:*}"
  expect "connect" concat --dhchap-secret="$first"
  verify
  grep -q "${hash#*:}" /tmp/tlshd.log || fail "another cipher suite"
  expect "reset" nvme reset "/dev/$(ls /sys/class/nvme | head -n 1)"
  verify
  expect "disconnect" nvme disconnect -n "$NQN"
done

step "another key over the connection with the first one"
expect "connect" concat --dhchap-secret="$first"
within 10 "its namespace" any_namespace
second=$(secret 1)
host secrets "$HOST" "$second"
host logged; position=$((REPLY + 1))
echo "$second" >"/sys/class/nvme/$(ls /sys/class/nvme | head -n 1)/dhchap_secret"
host logged $position "TLS key generated"
verify
expect "disconnect" nvme disconnect -n "$NQN"
first=$second

step "both ways"
controller=$(secret 1)
host secrets "$HOST" "$first" "$controller"
expect "connect" concat --dhchap-secret="$first" --dhchap-ctrl-secret="$controller"
verify
expect "disconnect" nvme disconnect -n "$NQN"
