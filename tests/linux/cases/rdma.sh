# The kernel's host over RDMA: verified load, a reset, verified load, disconnect; and what device and target report.
. /case/rdma.sh
modprobe nvme-rdma
# The kernel prints this line at the reset of a working controller.
DMESG_ALLOW='resetting controller'

# load: writes and reads of 4 to 64 KiB; a write of 4 KiB is within the command's capsule.
load() {
  expect "zero" dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=8 oflag=direct
  expect "blockcheck" blockcheck load /dev/nvme0n1 --blocks 2048 --threads 4 --seconds 5
  cat /tmp/expect.out
}

step "device"
rdma link show rdma0/1
mkdir -p /etc/libibverbs.d
echo "driver $RDMA" >/etc/libibverbs.d/rdma.driver
expect "attributes of the device" ibv_devinfo -v
grep -E 'transport|max_(mr_size|qp|qp_wr|sge|sge_rd|cq|cqe|mr|pd|qp_rd_atom|qp_init_rd_atom|res_rd_atom|srq|srq_wr|srq_sge):|device_cap_flags|(max|active)_mtu|max_msg_sz|MEM_|GID' /tmp/expect.out

step "connect"
connect
expect "id-ctrl" nvme id-ctrl /dev/nvme0
grep -E '^(mdts|maxcmd|sgls|ioccsz|iorcsz|icdoff|fcatt|msdbd|ofcs|sqes|cqes|kas) ' /tmp/expect.out
rdma resource show
rdma resource show qp
rdma resource show cm_id
(cd /sys/block/nvme0n1/queue && grep . max_hw_sectors_kb max_segments max_segment_size virt_boundary_mask; cd /sys/class/nvme/nvme0; grep . queue_count sqsize)

step "load"
load
# One request of the largest size.
random_file /tmp/a 4096
expect "write" dd if=/tmp/a of=/dev/nvme0n1 bs=1M oflag=direct
expect "read" dd if=/dev/nvme0n1 of=/tmp/b bs=1M count=4 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes came back"

step "reset"
expect "reset" nvme reset /dev/nvme0
within 30 "a live controller" is_live
expect "read" dd if=/dev/nvme0n1 of=/tmp/b bs=1M count=4 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes after the reset"
load

step "disconnect"
disconnect
within 10 "the end of the queue pairs" has_queue_pairs 0
