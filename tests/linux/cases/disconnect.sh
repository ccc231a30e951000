# Hosts connect and disconnect, also during I/O; the target keeps none of their state.
step "ten times in a row"
for i in $(seq 1 10); do
  connect
  expect "read" dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct
  disconnect
done
host connections
[ "$REPLY" = 0 ] || fail "$REPLY connections are left"

step "in the middle of I/O"
# The block layer reports the lost device to the load.
DMESG_ALLOW='I/O error, dev nvme0n1|failed to send request|no available path - failing I/O'
for i in 1 2 3; do
  connect
  blockcheck load /dev/nvme0n1 --blocks 512 --threads 4 --seconds 60 >/tmp/load 2>&1 &
  load=$!
  usleep 300000
  disconnect
  if wait $load; then fail "the load did not notice"; fi
  connect
  expect "zero" dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=32 oflag=direct
  disconnect
done
host connections
[ "$REPLY" = 0 ] || fail "$REPLY connections are left"
