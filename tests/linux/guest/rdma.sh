# RDMA in software: the device rdma0 on eth0, of the type $RDMA (rxe: RoCE version 2; siw: iWARP). Sourced by the guests of cases with
# RDMA, after lib.sh.
PORT_STATE=/sys/class/infiniband/rdma0/ports/1

port_is_active() { grep -q ACTIVE $PORT_STATE/state; }
# The address of RoCE is in the GID table as ::ffff:A.B.C.D.
has_gid() { grep -qi "$(printf 'ffff:%02x%02x:%02x%02x' $(echo "$GUEST_ADDRESS" | tr . ' '))" $PORT_STATE/gids/*; }
# has_queue_pairs N: so many queue pairs of the kernel's users, without the device's own for management (GSI).
has_queue_pairs() { [ "$(rdma resource show qp link rdma0 | grep -c 'type RC')" = "$1" ]; }

modprobe ib_uverbs
case $RDMA in
  rxe)
    modprobe crc32_generic # checksum of packets, found by name
    modprobe rdma_rxe || fail "no module rdma_rxe in $(uname -r)"
    ;;
  siw)
    modprobe libcrc32c
    insmod /siw.ko || fail "siw.ko is not for $(uname -r): run tests/linux/prepare.sh 6.12-generic siw"
    ;;
  *) fail "unknown RDMA=$RDMA; known: rxe siw" ;;
esac
expect "add the device" rdma link add rdma0 type "$RDMA" netdev eth0
within 10 "an active port" port_is_active
[ "$RDMA" != rxe ] || within 10 "the address in the GID table" has_gid
