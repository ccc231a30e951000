SIZE_MIB=64

# host_connections: the target's number of connections, a moment after the guest disconnected.
host_connections() {
  soon 5 no_connections || true
  connections
}
