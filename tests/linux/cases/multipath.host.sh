# One server with two addresses of the outer machine's loopback network, which the discovery log lists as they are. Its control socket is used
# under load.
[[ $PEER == pilotlight ]] || die "multipath: only against pilotlight"
GUEST_TARGET=127.0.0.1
SIZE_MIB=16
CPUS=2

peer_arguments() { printf '%s\n' --config "$OUT/server.toml"; }

case_before() {
  local second
  second=$(free_port)
  GUEST_ENV+="SECOND_PORT=$second"$'\n'
  # A socket's path has at most 107 bytes.
  SOCKET_DIR=$(mktemp -d)
  trap 'finish; rm -rf "$SOCKET_DIR"' EXIT
  cat >"$OUT/server.toml" <<TOML
[server]
listen = ["127.0.0.1:$PORT", "127.0.0.1:$second"]

[admin]
socket = "$SOCKET_DIR/socket"
state = "none"

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
nsid = 1
backend = "mem:${SIZE_MIB}MiB"
block_size = $BLOCK_SIZE
TOML
}

# host_ask COMMAND ARGUMENT...: a request on the control socket.
host_ask() { timeout 30 "$PILOTLIGHT" "$@" --socket "$SOCKET_DIR/socket"; }

# host_drain ADDRESS: returns when no command of a host is in progress on it.
host_drain() { host_ask path drain "$1" --json | grep -q '"busy": *0' || { host_ask path list; return 1; }; }

# host_toggle ADDRESS ADDRESS: closes and opens both in turn, not waiting for the host.
host_toggle() {
  local address i
  for ((i = 0; i < 8; i++)); do
    for address; do
      host_drain "$address"
      host_ask path restore "$address" >/dev/null
    done
  done
}

host_after() { rm -rf "$SOCKET_DIR"; }
