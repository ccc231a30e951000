# Typical steps of an administrator: discover, connect, inspect, write, read back, disconnect.
step "discover"
nvme discover -t tcp -a "$ADDRESS" -s "$PORT" >/tmp/discovery || fail "discover"
grep -q "subnqn: *$NQN" /tmp/discovery || { cat /tmp/discovery; fail "the discovery log does not have $NQN"; }
# "Connect Invalid Data Parameter" is the correct status for an unknown name.
DMESG_ALLOW='Connect Invalid Data Parameter|failed to connect queue: 0 ret=16770'
refuse "connect to a subsystem that is not there" nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$NQN.nothing"

step "connect"
connect
expect "list" nvme list
grep -q /dev/nvme0n1 /tmp/expect.out || { cat /tmp/expect.out; fail "nvme list does not show the namespace"; }
expect "list-subsys" nvme list-subsys
[ "$(sectors /dev/nvme0n1)" = $((SIZE_MIB * 2048)) ] || fail "the size is $(sectors /dev/nvme0n1) sectors"

step "identify"
for words in "id-ctrl /dev/nvme0" "id-ctrl -H /dev/nvme0" "id-ns /dev/nvme0n1" "id-ns -H /dev/nvme0n1" "ns-descs /dev/nvme0n1" \
  "list-ns /dev/nvme0" "get-property /dev/nvme0 -o 0" "get-property /dev/nvme0 -o 0x14 -H" "smart-log /dev/nvme0" "error-log /dev/nvme0" "fw-log /dev/nvme0"; do
  expect "$words" nvme $words
  cp /tmp/expect.out "/tmp/out-$(echo "$words" | tr -c 'a-z0-9\n' _)"
done
cat /tmp/out-id_ctrl__dev_nvme0 /tmp/out-id_ns__dev_nvme0n1 /tmp/out-ns_descs__dev_nvme0n1
grep -q "subnqn *: $NQN" /tmp/out-id_ctrl__dev_nvme0 || fail "id-ctrl has another subnqn"
grep -q 'uuid *: *[0-9a-f]*[1-9a-f]' /tmp/out-ns_descs__dev_nvme0n1 || fail "ns-descs has no uuid"

# nvme-cli 2.3 requests every register of a PCIe controller, and stops at a status that is neither success nor a plain Invalid Field
# (02h, with Do Not Retry and More clear). nvmet sets both bits, so it fails there.
if [ "$PEER" != nvmet ]; then
  expect "show-regs" nvme show-regs -H /dev/nvme0
  grep -q 'cap *: *[0-9a-f]*[1-9a-f]' /tmp/expect.out || { cat /tmp/expect.out; fail "show-regs shows no CAP"; }
fi

step "write, read, verify"
random_file /tmp/a 4096
expect "dd out" dd if=/tmp/a of=/dev/nvme0n1 bs=64k oflag=direct conv=fsync
echo 3 >/proc/sys/vm/drop_caches
expect "dd in" dd if=/dev/nvme0n1 of=/tmp/b bs=64k count=64 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes came back"
dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=64 oflag=direct 2>/dev/null
expect "blockcheck" blockcheck load /dev/nvme0n1 --blocks 1024 --threads 2 --seconds 2
cat /tmp/expect.out

step "connect-all finds it by discovery"
disconnect
nvme connect-all -t tcp -a "$ADDRESS" -s "$PORT" # its status is always 0
within 15 "a namespace after connect-all" any_namespace
block_device "$NAMESPACE"
expect "read" dd if="$NAMESPACE" of=/tmp/b bs=64k count=1 iflag=direct

step "disconnect"
expect "disconnect" nvme disconnect -n "$NQN"
