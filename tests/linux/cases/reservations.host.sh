# shellcheck disable=SC2034 # read by run.sh
BACKING=file
KERNEL_ARGS="nvme_core.multipath=N"
[[ $PEER == pilotlight ]] || die "reservations: only against pilotlight"

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }
case_before() {
  mkdir -p "$OUT/reservations"
  cat >"$OUT/server.toml" <<END
[server]
listen = ["127.0.0.1:$PORT"]
advertise = "10.0.2.2:$PORT"
reservations = "$OUT/reservations"

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
nsid = 1
backend = "file:$DISK"
END
}

host_kill() { peer_kill; }
host_start() { peer_start; }
