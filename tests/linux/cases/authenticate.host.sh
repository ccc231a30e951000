[[ $PEER == pilotlight ]] || die "authenticate: only against pilotlight"
. "$HARNESS/reload.sh"

# DH_GROUPS: groups, each of which the server allows alone once.
GUEST_ENV="DH_GROUPS='${DH_GROUPS=ffdhe3072 ffdhe4096}'"

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

case_before() {
  install -m 600 /dev/null "$OUT/secrets"
  printf '[server]\nlisten = ["127.0.0.1:%s"]\nadvertise = "10.0.2.2:%s"\n\n[security]\nsecrets_file = "secrets"\n%s\n
[[subsystem]]\nnqn = "%s"\n\n[[subsystem.namespace]]\nnsid = 1\nbackend = "mem:16MiB"\n' "$PORT" "$PORT" "${SECURITY:-}" "$NQN" >"$OUT/server.toml"
}

# host_secrets HOSTNQN KEY [CONTROLLER_KEY]: the secrets of this host, in force on return.
host_secrets() {
  { echo "$1 dhchap_key $2"; [[ -z ${3:-} ]] || echo "$1 dhchap_ctrl_key $3"; } >"$OUT/secrets"
  reload
}

# host_also HOSTNQN KEY: the secret of another host, too.
host_also() {
  echo "$1 dhchap_key $2" >>"$OUT/secrets"
  reload
}

# host_group GROUP: the only one that the server allows.
host_group() {
  sed -i "/^dh_groups/d; s/^secrets_file.*/&\ndh_groups = [\"$1\"]/" "$OUT/server.toml"
  reload
}
