# Two listeners, without and with TLS, of one server. It accepts keys of Debian 13's programs with `accept_old_libnvme`.
[[ $PEER == pilotlight ]] || die "tls: only against pilotlight"
. "$HARNESS/reload.sh"
tls_programs
ARCHIVES+=(fio.cpio)
# After so many writes on a connection the server changes its key, if it was built with debug assertions.
export PILOTLIGHT_TEST_TLS_WRITES=3000

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

case_before() {
  TLS_PORT=$(free_port)
  GUEST_ENV+="TLS_PORT=$TLS_PORT
KEY_UPDATES=$(grep -qF PILOTLIGHT_TEST_TLS_WRITES "$PILOTLIGHT" && echo yes || echo no)"
  install -m 600 /dev/null "$OUT/secrets"
  configure "$OLD"
}

# configure ACCEPT_OLD_LIBNVME
configure() {
  cat >"$OUT/server.toml" <<TOML
[server]
listen = ["127.0.0.1:$PORT"]
advertise = "10.0.2.2:$PORT"
tls_listen = ["127.0.0.1:$TLS_PORT"]
tls_advertise = "10.0.2.2:$TLS_PORT"

[security]
secrets_file = "secrets"
accept_old_libnvme = $1

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
nsid = 1
backend = "mem:64MiB"
TOML
}

# host_secrets HOSTNQN TLS_KEY [DHCHAP_KEY]: the secrets of this host, in force on return.
host_secrets() {
  { echo "$1 tls_key $2"; [[ -z ${3:-} ]] || echo "$1 dhchap_key $3"; } >"$OUT/secrets"
  reload
}

# host_accept_old true|false: whether keys of old libnvme are accepted, in force on return.
host_accept_old() {
  configure "$1"
  reload
}

# A host that leaves is nothing to warn of.
host_after() {
  ! grep 'TLS connection lost' "$OUT/server.log" || { say "the server warned (above)"; return 1; }
}
