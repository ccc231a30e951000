# The kernel's host and the kernel's target, each in a guest with an RDMA device in software; the guests are joined by a TCP connection of
# their QEMUs on loopback.
#
# RDMA=rxe|siw    the device: RoCE version 2 (default) or iWARP
# INLINE=BYTES    data within a capsule that the target accepts (default of nvmet-rdma: 4096)
[[ $PEER == nvmet ]] || die "Pilotlight has no RDMA transport: run with PEER=nvmet"
[[ $KERNEL == *-generic ]] || die "the kernel $KERNEL has no RDMA device in software: tests/linux/run.sh rdma 6.12-generic"
RDMA=${RDMA:-rxe}
GUEST_ENV="TRANSPORT=rdma"$'\n'"RDMA=$RDMA"$'\n'"INLINE=${INLINE:-}"
ARCHIVES=(rdma.cpio)
if [[ $RDMA == siw ]]; then
  [[ -e $CACHE/siw.stamp ]] || die "the module siw is not prepared: run tests/linux/prepare.sh 6.12-generic siw"
  ARCHIVES+=(siw.cpio)
fi
PEER_ARCHIVES=("${ARCHIVES[@]}")
PEER_KERNEL=$KERNEL
SIZE_MIB=64
NETWORK=socket
case_before() { PEER_NETDEV=",listen=127.0.0.1:$PORT" NETDEV=",connect=127.0.0.1:$PORT"; }
host_after() { peer_finish; }
