# The target runs in this guest, on a partition of a disk whose writes and flushes are all recorded by QEMU (blklogwrites). The kernel's
# initiator, in the same guest, writes and flushes; blockcheck writes a mark of each durability acknowledgement to the disk's other
# partition, so to the same record. Afterwards crates/pilotlight/tests/linux replays the record.
#
# DURABILITY:
#   honest     unchanged
#   no-fua     durable writes are sent without FUA, as to a target that ignores the bit
#   no-cache   the kernel assumes a disk without a volatile cache: the target's flush and FUA do not reach the disk,
#              as in a target whose flush is a no-op
# The last two must be detected.
#
# DRIVE: virtio has no Force Unit Access, so the target flushes after such a write; a SCSI disk executes it. (QEMU's NVMe drive reports FUA
# but ignores it: its writes are lost.)
case $DRIVE in
  virtio) disk=vda ;;
  scsi) modprobe virtio_scsi && modprobe sd_mod && disk=sda ;;
esac
wait_block "/dev/${disk}2"
case $DRIVE-$(cat /sys/class/block/$disk/queue/fua) in
  virtio-0 | scsi-1) ;;
  *) fail "$DRIVE: fua is $(cat /sys/class/block/$disk/queue/fua)" ;;
esac
fua=--force-unit-access
case $DURABILITY in
  no-fua) fua="" ;;
  no-cache) echo "write through" >/sys/class/block/$disk/queue/write_cache ;;
esac

step "the target, $DURABILITY"
/host/pilotlight serve --listen 127.0.0.1:4420 --nqn "$NQN" --namespace "file:/dev/${disk}1" --block-size 4096 >/tmp/server 2>&1 &
trap 'code=$?; [ $code -eq 0 ] || { cat /tmp/server; dmesg | tail -25; }' EXIT
within 20 "the target's port" sh -c 'netstat -ltn | grep -q 127.0.0.1:4420'
ADDRESS=127.0.0.1 PORT=4420
connect
cat >/tmp/fua <<FUA
#!/bin/sh
exec nvme write "\$1" --start-block="\$3" --block-count=0 --data-size=4096 --data="\$2" $fua >/dev/null
FUA
chmod +x /tmp/fua
[ "$(blockdev --getss /dev/nvme0n1)" = 4096 ] || fail "the workload requires blocks of 4096 bytes"
expect "blockcheck" blockcheck durable /dev/nvme0n1 "/dev/${disk}2" --blocks 256 --steps 400 --fua /tmp/fua
cat /tmp/expect.out
disconnect
