[[ $PEER == pilotlight ]] || die "referral: only against pilotlight"

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

# write_config REFERRAL NQN...: each subsystem with its own namespace; REFERRAL is "none" for no referral.
write_config() {
  local referral=$1 nqn
  shift
  {
    printf '[server]\nlisten = ["127.0.0.1:%s"]\nadvertise = "10.0.2.2:%s"\n' "$PORT" "$PORT"
    [[ $referral == none ]] || printf '\n[[discovery.referral]]\naddress = "%s"\n' "$referral"
    for nqn in "$@"; do
      printf '\n[[subsystem]]\nnqn = "%s"\n\n[[subsystem.namespace]]\nnsid = 1\nbackend = "mem:16MiB"\n' "$nqn"
    done
  } >"$OUT/server.toml"
}

case_before() { write_config none "$NQN"; }

host_serve() {
  write_config "$@"
  kill -HUP "$(peer_pid)"
}
