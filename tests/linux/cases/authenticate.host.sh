[[ $PEER == pilotlight ]] || die "authenticate: only against pilotlight"

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

case_before() {
  install -m 600 /dev/null "$OUT/secrets"
  printf '[server]\nlisten = ["127.0.0.1:%s"]\nadvertise = "10.0.2.2:%s"\n\n[security]\nsecrets_file = "secrets"\n%s\n
[[subsystem]]\nnqn = "%s"\n\n[[subsystem.namespace]]\nnsid = 1\nbackend = "mem:16MiB"\n' "$PORT" "$PORT" "${SECURITY:-}" "$NQN" >"$OUT/server.toml"
}

reloads() { cat "$OUT"/server*.log | grep -c 'configuration read again' || true; }

# host_secrets HOSTNQN KEY [CONTROLLER_KEY]: the secrets of this host, in force on return.
host_secrets() {
  local before
  before=$(reloads)
  { echo "$1 dhchap_key $2"; [[ -z ${3:-} ]] || echo "$1 dhchap_ctrl_key $3"; } >"$OUT/secrets"
  kill -HUP "$(peer_pid)"
  until [[ $(reloads) -gt $before ]]; do
    [[ -e /proc/$(peer_pid) ]] || die "the server has ended"
    sleep 0.05
  done
}
