# RDMA in software: the device rdma0 on eth0, of the type $RDMA (rxe: RoCE version 2). Sourced by the guests of cases with RDMA, after lib.sh.
PORT_STATE=/sys/class/infiniband/rdma0/ports/1

port_is_active() { grep -q ACTIVE $PORT_STATE/state; }
# The address is in the GID table as ::ffff:A.B.C.D.
has_gid() { grep -qi "$(printf 'ffff:%02x%02x:%02x%02x' $(echo "$GUEST_ADDRESS" | tr . ' '))" $PORT_STATE/gids/*; }
# has_queue_pairs N: so many queue pairs of the kernel's users, without the device's own for management (GSI).
has_queue_pairs() { [ "$(rdma resource show qp link rdma0 | grep -c 'type RC')" = "$1" ]; }

modprobe crc32_generic # checksum of packets, found by name
modprobe "rdma_$RDMA" || fail "no module rdma_$RDMA in $(uname -r); known RDMA=: rxe"
expect "add the device" rdma link add rdma0 type "$RDMA" netdev eth0
within 10 "an active port" port_is_active
within 10 "the address in the GID table" has_gid
