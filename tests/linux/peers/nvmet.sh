# Linux's own target in a second guest, to distinguish errors of the harness from errors of the target. Functions: see pilotlight.sh.
#
# The guest has the address of the initiator's gateway (10.0.2.2) and listens on the port that is forwarded to it, so that its discovery log
# is valid for the initiator.

peer_start() {
  # Bash passes a function's locals to its callees: this guest is not the case's.
  local CAPTURE=no CPUS=1 KERNEL=${PEER_KERNEL:-6.12} GUEST_QEMU=() ARCHIVES=(${PEER_ARCHIVES[@]+"${PEER_ARCHIVES[@]}"})
  local GUEST_ADDRESS=10.0.2.2 GUEST_GATEWAY=10.0.2.100 MAC=52:54:00:12:34:57
  local NETDEV=${PEER_NETDEV:-,net=10.0.2.0/24,host=10.0.2.100,dns=10.0.2.101,hostfwd=tcp:127.0.0.1:$PORT-10.0.2.2:$PORT}
  rm -f "$OUT"/monitor.{in,out}
  mkfifo "$OUT"/monitor.{in,out}
  guest_start server "$HARNESS/peers/nvmet.guest.sh" \
    -blockdev "driver=raw,node-name=disk,discard=unmap,file.driver=file,file.filename=$DISK,file.discard=unmap" \
    -device virtio-blk-pci,drive=disk,logical_block_size=512 \
    -chardev "pipe,id=monitor,path=$OUT/monitor" -mon chardev=monitor,mode=control
  exec 7<>"$OUT/monitor.in"
  echo '{"execute":"qmp_capabilities"}' >&7
  exec 5<>"$OUT/server.ctl.in" 6<>"$OUT/server.ctl.out"
  soon 40 nvmet_is_ready_or_off || true
  nvmet_is_ready || { tail -40 "$OUT/server.console" >&2; say "nvmet did not start"; return 1; }
}

nvmet_is_ready() { grep -q 'nvmet is ready' "$OUT/server.console"; }
nvmet_is_ready_or_off() { nvmet_is_ready || guest_is_off server; }

peer_stop() { guest_stop server; }

# peer_finish: ends the guest and checks its kernel's log.
peer_finish() {
  echo finish >&5
  soon 30 guest_is_off server || { echo "the target's guest does not end"; return 1; }
  [[ $(guest_status server) == 0 ]]
}
peer_kill() { kill -KILL "$(guest_qemu_pid server)"; soon 5 guest_is_off server; }

peer_resize() {
  echo '{"execute":"block_resize","arguments":{"node-name":"disk","size":'$(($1 * 1048576))'}}' >&7
  echo revalidate >&5
}

peer_allocated_kib() { echo $(($(stat -c '%b * %B' "$DISK") / 1024)); }
