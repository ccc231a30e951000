# Namespaces are added and removed while a host is connected: the host is notified, and a kept namespace keeps its
# identity and data.
connect
DMESG_ALLOW='rescanning namespaces|changed'
random_file /tmp/a 64
expect "write" dd if=/tmp/a of=/dev/nvme0n1 bs=64k oflag=direct
uuid=$(cat /sys/class/block/nvme0n1/uuid)

step "another namespace"
host serve 1 5
wait_block /dev/nvme0n2 # Linux numbers consecutively; the NSID is 5
[ "$(cat /sys/class/block/nvme0n2/nsid)" = 5 ] || fail "nsid is $(cat /sys/class/block/nvme0n2/nsid)"
expect "blockcheck on the new one" blockcheck load /dev/nvme0n2 --blocks 256 --threads 2 --seconds 1
expect "list-ns" nvme list-ns /dev/nvme0
grep -q '0x5' /tmp/expect.out || { cat /tmp/expect.out; fail "list-ns does not have 5"; }

step "the first goes"
host serve 5
within 10 "the end of nvme0n1" test ! -e /dev/nvme0n1
block_device /dev/nvme0n2

step "and comes back"
host serve 1 5
wait_block /dev/nvme0n1
[ "$(cat /sys/class/block/nvme0n1/uuid)" = "$uuid" ] || fail "another uuid than before"
expect "read" dd if=/dev/nvme0n1 of=/tmp/b bs=64k count=1 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes than before"
disconnect
