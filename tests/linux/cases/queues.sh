# Several I/O queues of the maximum size of Linux, separate queue types, and depth to fill them.
step "four queues of 1,024"
connect --nr-io-queues=4 --queue-size=1024
[ "$(cat /sys/class/nvme/nvme0/queue_count)" = 5 ] || fail "$(cat /sys/class/nvme/nvme0/queue_count) queues instead of 5"
if [ "$PEER" != nvmet ]; then
  [ "$(cat /sys/class/nvme/nvme0/sqsize)" = 1023 ] || fail "sqsize is $(cat /sys/class/nvme/nvme0/sqsize)"
fi
expect "blockcheck" blockcheck load /dev/nvme0n1 --blocks 2048 --threads 8 --seconds 3
cat /tmp/expect.out
expect "fio" fio --name=verify --filename=/dev/nvme0n1 --offset=32m --size=8m --direct=1 --ioengine=libaio --iodepth=256 --rw=randwrite \
  --bs=4k --verify=crc32c --verify_fatal=1 --numjobs=1 --thread --output-format=terse
disconnect

step "read, write and poll queues of their own, no flow control"
connect --nr-io-queues=2 --nr-write-queues=1 --nr-poll-queues=1 --disable-sqflow
dmesg | grep -q 'mapped 2/1/1 default/read/poll\|mapped 1/2/1 default/read/poll' || dmesg | grep mapped
expect "zero" dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=128 oflag=direct
expect "blockcheck" blockcheck load /dev/nvme0n1 --blocks 2048 --threads 4 --seconds 1
cat /tmp/expect.out
disconnect
