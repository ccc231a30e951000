# The target's guest: nvmet over $TRANSPORT (default tcp) on its virtio disk.
TRANSPORT=${TRANSPORT:-tcp}
[ "$TRANSPORT" != rdma ] || . /case/rdma.sh
modprobe "nvmet-$TRANSPORT"
mkdir -p /cfg
mount -t configfs configfs /cfg
s=/cfg/nvmet/subsystems/$NQN
mkdir "$s"
echo 1 >"$s/attr_allow_any_host"
mkdir "$s/namespaces/1"
# The identity must be the same after a restart: Linux drops a namespace whose identifiers change.
echo 11111111-2222-4333-8444-555555555555 >"$s/namespaces/1/device_uuid"
echo 0123456789abcdef >"$s/attr_serial"
echo /dev/vda >"$s/namespaces/1/device_path"
echo 1 >"$s/namespaces/1/enable"
p=/cfg/nvmet/ports/1
mkdir "$p"
echo "$TRANSPORT" >"$p/addr_trtype"
echo ipv4 >"$p/addr_adrfam"
echo "$GUEST_ADDRESS" >"$p/addr_traddr"
echo "$PORT" >"$p/addr_trsvcid"
[ -z "${INLINE:-}" ] || echo "$INLINE" >"$p/param_inline_data_size"
ln -s "$s" "$p/subsystems/$NQN"
step "nvmet is ready"
while read -r line; do
  step "$line"
  case $line in
    revalidate) usleep 500000; echo 1 >"$s/namespaces/1/revalidate_size" ;;
    finish) break ;;
  esac
done </dev/ttyS1
[ "$TRANSPORT" != rdma ] || within 15 "the end of the host's queue pairs" has_queue_pairs 0
