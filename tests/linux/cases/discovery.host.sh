[[ $PEER == pilotlight ]] || die "discovery: only against pilotlight"

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

# write_config NQN...: each with its own namespace.
write_config() {
  local nqn
  {
    printf '[server]\nlisten = ["127.0.0.1:%s"]\nadvertise = "10.0.2.2:%s"\n' "$PORT" "$PORT"
    for nqn in "$@"; do
      printf '\n[[subsystem]]\nnqn = "%s"\n\n[[subsystem.namespace]]\nnsid = 1\nbackend = "mem:16MiB"\n' "$nqn"
    done
  } >"$OUT/server.toml"
}

case_before() { write_config "$NQN"; }

host_serve() {
  write_config "$@"
  peer_stop
  sleep 1
  peer_start
}
