# TLS in the kernel on both sides: the server with `kernel_tls`, and the host. Verified load, another key, disconnect.
. /case/tls.sh
# A refused key is tested.
DMESG_ALLOW='TLS handshake|failed to connect queue'

connect() { nvme connect -t tcp -a 127.0.0.1 -s 4421 -n "$NQN" --nr-io-queues=1 --ctrl-loss-tmo=0 --tls; }
# sessions N: so many connections send and receive in the kernel, counting both sides.
sessions() { [ "$(awk '$1 == "TlsCurrTxSw" || $1 == "TlsCurrRxSw" { printf "%s ", $2 }' /proc/net/tls_stat)" = "$1 $1 " ]; }
logged() { grep -qF "$1" /tmp/server.log; }

cat >/tmp/server.toml <<TOML
[server]
tls_listen = "127.0.0.1:4421"
[security]
secrets_file = "secrets"
kernel_tls = true
accept_old_libnvme = $OLD
[[subsystem]]
nqn = "$NQN"
[[subsystem.namespace]]
nsid = 1
backend = "mem:64MiB"
TOML

# serve KEY: starts the server, with this key for the host.
serve() {
  (umask 77 && echo "$HOST tls_key $1" >/tmp/secrets)
  /host/pilotlight serve -vv --config /tmp/server.toml >>/tmp/server.log 2>&1 &
  SERVER=$!
  within 40 "an answer of the server" /host/pilotlight status --ready
}

# load KEY SUITE: connects, verifies and disconnects.
load() {
  insert "$1" 1
  expect "connect" connect
  within 10 "its namespace" any_namespace
  wait_block "$NAMESPACE"
  within 10 "two connections in the kernel on both sides" sessions 4
  grep -q "$2" /tmp/tlshd.log || fail "another cipher suite"
  expect "verified load" fio --name=verify --filename="$NAMESPACE" --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --bsrange=4k-128k \
    --size=24m --verify=crc32c --do_verify=1 --verify_fatal=1
  expect "disconnect" nvme disconnect -n "$NQN"
  within 10 "the end of every connection" sessions 0
  remove_keys
}

on_failure /tmp/server.log /tmp/tlshd.log
first=$(key 1)
serve "$first"
start_tlshd

step "another key"
insert "$(key 1)" 0
refuse "connect with another key" connect
within 10 "the refusal in the log" logged "the client has another key for its identity"
remove_keys

step "SHA-256"
load "$first" AES-128-GCM
if [ "$OLD" = false ]; then
  step "SHA-384"
  long=$(key 2)
  (umask 77 && echo "$HOST tls_key $long" >/tmp/secrets)
  kill -HUP $SERVER
  within 10 "the configuration read again" logged "configuration read again"
  load "$long" AES-256-GCM
fi

step "what remains"
awk '$1 == "TlsDecryptError" { errors = $2 } END { exit errors != 0 }' /proc/net/tls_stat || fail "records could not be decrypted"
if logged 'TLS stays in the server' || logged 'TLS connection lost'; then
  cat /tmp/server.log
  fail "the server warned"
fi
kill $SERVER
wait $SERVER
