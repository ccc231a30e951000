# host_freeze: stops the guest's QEMU until the target has dropped all its connections: no sooner than the keep-alive
# timeout of 3 s, and in 12 s (a target that counts traffic may need up to two timeouts, and this machine is slow).
host_freeze() {
  local qemu started=$SECONDS verdict=0
  qemu=$(guest_qemu_pid main)
  kill -STOP "$qemu"
  soon 12 no_connections || verdict=1
  local took=$((SECONDS - started))
  kill -CONT "$qemu"
  [[ $verdict == 0 ]] || { echo "connections are left after $took s"; return 1; }
  ((took >= 2)) || { echo "dropped after $took s already"; return 1; }
  echo "$took s"
}
