# The namespace grows while it is in use. First the target's own event must be sufficient; then a scan requested by the
# host.
connect
# The kernel reports the changes.
DMESG_ALLOW='rescanning namespaces|capacity change|changed'
[ "$(sectors /dev/nvme0n1)" = $((SIZE_MIB * 2048)) ] || fail "the size is $(sectors /dev/nvme0n1) sectors"
blockcheck load /dev/nvme0n1 --blocks 1024 --threads 2 --seconds 100 --until /tmp/stop >/tmp/load 2>&1 &
load=$!

step "grow: the event arrives"
host resize $((SIZE_MIB + 32))
within 10 "the new size, by the asynchronous event" has_sectors /dev/nvme0n1 $(((SIZE_MIB + 32) * 2048))
random_file /tmp/a 1024
expect "write beyond the old end" dd if=/tmp/a of=/dev/nvme0n1 bs=64k seek=$((SIZE_MIB * 16)) oflag=direct
expect "read beyond the old end" dd if=/dev/nvme0n1 of=/tmp/b bs=64k skip=$((SIZE_MIB * 16)) count=16 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes came back"

step "grow again, and rescan"
host resize $((SIZE_MIB + 64))
expect "ns-rescan" nvme ns-rescan /dev/nvme0
within 10 "the new size" has_sectors /dev/nvme0n1 $(((SIZE_MIB + 64) * 2048))

step "shrink"
host resize $SIZE_MIB
within 10 "the old size, by the asynchronous event" has_sectors /dev/nvme0n1 $((SIZE_MIB * 2048))
touch /tmp/stop
wait $load || { cat /tmp/load; fail "the load was disturbed"; }
cat /tmp/load
disconnect
