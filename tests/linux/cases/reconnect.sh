# The server is killed under load and restarted: the host reconnects by itself, no request is lost, every byte verifies.
connect --reconnect-delay=1 --ctrl-loss-tmo=30 --keep-alive-tmo=5
# This case kills the server: the kernel prints these lines until it has reconnected.
DMESG_ALLOW='failed nvme_keep_alive|starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|queue_size|I/O timeout|receive failed|reading non-mdts|failed to send request|Connect command failed|Removing after|failed to connect queue|timeout|io_queue|unable to|aborted|Property'
cp /proc/uptime /tmp/start

# Three restarts under load. 1 if fio ended without a message, which is not its behaviour for a wrong byte.
restarts() {
  rm -f /tmp/stop
  blockcheck load /dev/nvme0n1 --blocks 256 --threads 4 --seconds 100 --until /tmp/stop >/tmp/load 2>&1 &
  load=$!
  fio --name=verify --filename=/dev/nvme0n1 --offset=32m --size=4m --direct=1 --ioengine=libaio --iodepth=32 --rw=randrw --bs=4k \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --loops=1000 --time_based --runtime=16 --thread --output-format=terse >/tmp/fio 2>&1 &
  fio=$!
  usleep 1000000
  for how in kill kill stop; do
    host "$how"
    within 10 "notice that the server is gone" is_not_live
    host start
    within 25 "reconnect" is_live
    step "reconnected after $how"
    usleep 1500000
    kill -0 $load || { cat /tmp/load; fail "the load ended early"; }
  done
  touch /tmp/stop
  wait $load || { cat /tmp/load; fail "verification after the restarts"; }
  cat /tmp/load
  step "waiting for fio"
  wait $fio
  status=$?
  [ $status = 0 ] && return 0
  cat /tmp/fio
  [ -s /tmp/fio ] && fail "fio's verification ended with $status"
  step "fio ended with $status without output"
  return 1
}
restarts || { dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=1 conv=fsync 2>/dev/null; restarts; } || fail "fio ended twice without a word"
block_device /dev/nvme0n1
disconnect
