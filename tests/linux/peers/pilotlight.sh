# The target under test as a process of this side. Sourced by run.sh; every peer defines these functions: peer_start, peer_stop (SIGTERM),
# peer_kill (SIGKILL), peer_resize MIB, peer_allocated_kib (size of the backing file on disk).

PILOTLIGHT=${PILOTLIGHT:-$([[ -x $REPO/target/release/pilotlight ]] && echo "$REPO/target/release/pilotlight" || echo "$REPO/target/debug/pilotlight")}
[[ -x $PILOTLIGHT ]] || die "no program at $PILOTLIGHT: cargo build, or set PILOTLIGHT"

peer_namespace() { if [[ $BACKING == file ]]; then echo "file:$DISK"; else echo "mem:${SIZE_MIB}MiB"; fi; }

# The server's arguments, one per line; a case may define others.
peer_arguments() {
  printf '%s\n' --listen "127.0.0.1:$PORT" --advertise "10.0.2.2:$PORT" --nqn "$NQN" --namespace "$(peer_namespace)" \
    --block-size "$BLOCK_SIZE"
}

# The same as a configuration file, in which the namespace may shrink at SIGHUP.
peer_arguments_shrinking() {
  cat >"$OUT/server.toml" <<TOML
[server]
listen = ["127.0.0.1:$PORT"]
advertise = "10.0.2.2:$PORT"

[[subsystem]]
nqn = "$NQN"

[[subsystem.namespace]]
nsid = 1
backend = "$(peer_namespace)"
block_size = $BLOCK_SIZE
shrink = true
TOML
  printf '%s\n' --config "$OUT/server.toml"
}

peer_start() {
  local arguments
  mapfile -t arguments < <(peer_arguments)
  PILOTLIGHT_SOCKET=none "$PILOTLIGHT" serve -vv "${arguments[@]}" >>"$OUT/server.log" 2>&1 &
  echo $! >"$OUT/server.pid"
  soon 20 listens "$PORT" || { tail "$OUT/server.log" >&2; die "the server does not listen on port $PORT"; }
}

peer_pid() { cat "$OUT/server.pid"; }

peer_stop() {
  [[ -e $OUT/server.pid ]] || return 0
  kill -TERM "$(peer_pid)" 2>/dev/null || return 0
  soon 15 peer_is_gone || { say "the server ignores SIGTERM"; kill -KILL "$(peer_pid)"; return 1; }
}
peer_is_gone() { ! kill -0 "$(peer_pid)" 2>/dev/null; }

peer_kill() { kill -KILL "$(peer_pid)"; soon 5 peer_is_gone; }

peer_resize() {
  [[ $BACKING == file ]] || { echo "only a file can be resized"; return 1; }
  truncate -s "${1}M" "$DISK"
  kill -HUP "$(peer_pid)"
}

peer_allocated_kib() { echo $(($(stat -c '%b * %B' "$DISK") / 1024)); }
