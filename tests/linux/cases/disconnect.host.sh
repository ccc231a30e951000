SIZE_MIB=64

# host_connections: how many this side still has to the target, a moment after the guest hung up.
host_connections() {
  soon 5 no_connections || true
  connections
}
