[[ $PEER == pilotlight ]] || die "namespaces: only against pilotlight"
BACKING=file
SIZE_MIB=16

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

# write_config NSID...: each with its own file.
write_config() {
  local nsid
  {
    printf '[server]\nlisten = ["127.0.0.1:%s"]\nadvertise = "10.0.2.2:%s"\n\n[[subsystem]]\nnqn = "%s"\n' "$PORT" "$PORT" "$NQN"
    for nsid in "$@"; do
      truncate -s "${SIZE_MIB}M" "$OUT/disk-$nsid.img"
      printf '\n[[subsystem.namespace]]\nnsid = %s\nbackend = "file:%s"\n' "$nsid" "$OUT/disk-$nsid.img"
    done
  } >"$OUT/server.toml"
}

case_before() { write_config 1; }

host_serve() {
  write_config "$@"
  kill -HUP "$(peer_pid)"
}
