# An address for secure channel concatenation, and one without TLS for what must not work there.
[[ $PEER == pilotlight ]] || die "concat: only against pilotlight"
. "$HARNESS/reload.sh"
tls_programs

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

case_before() {
  CONCAT_PORT=$(free_port)
  GUEST_ENV+="CONCAT_PORT=$CONCAT_PORT"
  install -m 600 /dev/null "$OUT/secrets"
  cat >"$OUT/server.toml" <<TOML
[server]
listen = ["127.0.0.1:$PORT"]
advertise = "10.0.2.2:$PORT"
concat_listen = ["127.0.0.1:$CONCAT_PORT"]

[security]
secrets_file = "secrets"

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
nsid = 1
backend = "mem:64MiB"
TOML
}

# host_secrets HOSTNQN KEY [CONTROLLER_KEY]: the secrets of this host, in force on return.
host_secrets() {
  { echo "$1 dhchap_key $2"; [[ -z ${3:-} ]] || echo "$1 dhchap_ctrl_key $3"; } >"$OUT/secrets"
  reload
}


# host_hash NAME: the only one that the server allows.
host_hash() {
  sed -i "/^hashes/d; s/^secrets_file.*/&\nhashes = [\"$1\"]/" "$OUT/server.toml"
  reload
}
