# The target runs in this guest, on a device-mapper device whose table defines the failures:
#
#   sound       everything works
#   bad-sector  block 1024 cannot be read or written
#   no-flush    everything is read and written, and a flush of the device fails (its second part, which is never
#               written, always fails, and a flush goes to each part)
#
# A bad sector must not make Flush fail. A flush that failed inside a write with FUA must make every later Flush fail, also when the device
# works again.
modprobe dm-mod
modprobe dm-flakey
# This case causes the faults. A shutdown whose flush failed is not reported as complete (CSTS.CFS).
DMESG_ALLOW='I/O error|I/O Cmd|Write Fault|Unrecovered|Internal Error|aborting shutdown, CSTS=0x7'

blocks=4096                     # of 4096 bytes; a sector of device-mapper has 512
table() {
  case $1 in
    sound) echo "0 $((blocks * 8)) linear /dev/vda 0"; echo "$((blocks * 8)) 8 linear /dev/vda $((blocks * 8))" ;;
    bad-sector)
      echo "0 8192 linear /dev/vda 0"
      echo "8192 8 error"
      echo "8200 $((blocks * 8 - 8192)) linear /dev/vda 8200" ;;
    no-flush)
      echo "0 $((blocks * 8)) linear /dev/vda 0"
      echo "$((blocks * 8)) 8 flakey /dev/vda $((blocks * 8)) 0 1 1 error_writes" ;;
  esac
}
# device TABLE: sets the current failures.
device() {
  step "the device: $1"
  table "$1" | expect "another table" dmsetup load --noudevsync faulty
  expect "the change" dmsetup suspend --noudevsync --noflush --nolockfs faulty
  expect "the change" dmsetup resume --noudevsync faulty
}

dd if=/dev/urandom of=/tmp/block bs=4096 count=1 2>/dev/null
# write_block BLOCK OPTION...: a passthrough command, as repeated by the block layer.
write_block() {
  local block=$1
  shift
  nvme write /dev/nvme0n1 --start-block="$block" --block-count=0 --data-size=4096 --data=/tmp/block "$@"
}
flush() { nvme flush /dev/nvme0 --namespace-id=1; }
FUA=--force-unit-access

# serve: starts the target on the device, and connects the host to it.
serve() {
  /host/pilotlight serve --listen 127.0.0.1:4420 --nqn "$NQN" --namespace file:/dev/dm-0 --block-size 4096 >/tmp/server 2>&1 &
  server=$!
  within 20 "the target's port" sh -c 'netstat -ltn | grep -q 127.0.0.1:4420'
  ADDRESS=127.0.0.1 PORT=4420
  connect
}
stop() {
  disconnect
  kill $server
  wait $server && return 0
  return 1
}

table sound | expect "the device" dmsetup create --noudevsync faulty
wait_block /dev/dm-0
trap 'code=$?; [ $code -eq 0 ] || { cat /tmp/server; dmesg | tail -25; }' EXIT

serve
device bad-sector
expect "a write" write_block 7
refuse "a write to the bad sector" write_block 1024
expect "a flush after it" flush
refuse "a write with FUA to the bad sector" write_block 1024 $FUA
expect "a flush after it" flush
expect "a write with FUA elsewhere" write_block 7 $FUA
expect "a flush after it" flush
device sound
expect "a write with FUA to the sector that was bad" write_block 1024 $FUA
expect "a flush after it" flush
stop || fail "the server's last flush"

serve
expect "a write" write_block 7
device no-flush
refuse "a write with FUA, of which the device cannot be flushed" write_block 9 $FUA
device sound
expect "a write with FUA to the sound device" write_block 9 $FUA
refuse "a flush after writes may have been lost" flush
refuse "another one" flush
stop && fail "the server reports that everything was flushed"
grep -q . /tmp/server || fail "the server does not report the failed flush"

serve
expect "a flush by a server that has opened the device anew" flush
stop || fail "the server's last flush"
