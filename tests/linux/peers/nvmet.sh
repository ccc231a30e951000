# Linux's own target in a second guest, to tell the harness's mistakes from ours. Words: see pilotlight.sh.
#
# The guest has the address that the initiator's guest knows as its gateway (10.0.2.2) and listens on the very port
# that is forwarded to it, so that what its discovery log says is true for the initiator.

peer_start() {
  local saved_capture=$CAPTURE
  CAPTURE=no
  GUEST_ADDRESS=10.0.2.2 GUEST_GATEWAY=10.0.2.100 GUEST_QEMU=() CPUS=1 KERNEL=6.12 \
    NETDEV=",net=10.0.2.0/24,host=10.0.2.100,dns=10.0.2.101,hostfwd=tcp:127.0.0.1:$PORT-10.0.2.2:$PORT" \
    guest_start server "$HARNESS/peers/nvmet.guest.sh" \
    -blockdev "driver=raw,node-name=disk,discard=unmap,file.driver=file,file.filename=$DISK,file.discard=unmap" \
    -device virtio-blk-pci,drive=disk,logical_block_size=512 \
    -qmp "unix:$OUT/qmp,server=on,wait=off"
  CAPTURE=$saved_capture
  exec 5<>"$OUT/server.ctl.in" 6<>"$OUT/server.ctl.out"
  echo "${GUEST_PID[server]}" >"$OUT/server.pid"
  soon 40 grep -q 'nvmet is ready' "$OUT/server.console" || { tail -40 "$OUT/server.console" >&2; die "nvmet did not start"; }
}

peer_stop() { guest_stop server; }
peer_kill() { kill -KILL "$(cat "$OUT/server.pid")"; }

peer_resize() {
  echo "nvmet: not done here"
  return 1
}

peer_allocated_kib() { echo $(($(stat -c '%b * %B' "$DISK") / 1024)); }
