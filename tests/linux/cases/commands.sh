# Commands that a kernel rarely sends, by nvme-cli's passthrough; then a controller reset.
connect
step "blocks of $(blockdev --getss /dev/nvme0n1) bytes"
bs=$(blockdev --getss /dev/nvme0n1)
n=$((32768 / bs)) # blocks in the 32 KiB that each step below handles; counts on the command line are 0-based

# at KIB FILE: reads the 32 KiB of the namespace at KIB into FILE.
at() { dd if=/dev/nvme0n1 of="$2" bs=32k skip=$(($1 / 32)) count=1 iflag=direct 2>/dev/null; }
slba() { echo $(($1 * 1024 / bs)); }

step "write, write with FUA, read, flush"
random_file /tmp/a 32
random_file /tmp/c 32
expect "write" nvme write /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -z 32768 -d /tmp/a
expect "write with FUA" nvme write /dev/nvme0n1 -s "$(slba 128)" -c $((n - 1)) -z 32768 -d /tmp/c -f
expect "flush" nvme flush /dev/nvme0n1 -n 1
expect "read" nvme read /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -z 32768 -d /tmp/b
cmp /tmp/a /tmp/b
expect "read with FUA" nvme read /dev/nvme0n1 -s "$(slba 128)" -c $((n - 1)) -z 32768 -d /tmp/b -f
cmp /tmp/c /tmp/b

step "write zeroes, in the middle of the 32 KiB"
expect "write-zeroes" nvme write-zeroes /dev/nvme0n1 -s $(($(slba 64) + 1)) -c $((n - 3))
at 64 /tmp/b
cp /tmp/a /tmp/expected
dd if=/dev/zero of=/tmp/expected bs="$bs" seek=1 count=$((n - 2)) conv=notrunc 2>/dev/null
cmp /tmp/expected /tmp/b || fail "write zeroes wrote something else"
expect "write-zeroes with deallocate" nvme write-zeroes /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -d
zeros /dev/nvme0n1 64 32 || fail "not zero after write zeroes with deallocate"

step "dataset management"
expect "dsm" nvme dsm /dev/nvme0n1 -n 1 --ad -s "$(slba 128)" -b "$n"
if nvme id-ns /dev/nvme0n1 | grep -Eq 'dlfeat *: *(1|9|17|25)$'; then
  zeros /dev/nvme0n1 128 32 || fail "DLFEAT promises zeros after deallocate"
else
  echo "DLFEAT promises nothing about deallocated blocks"
  [ "$PEER" = nvmet ] || fail "it should"
fi

step "beyond the end"
refuse "read beyond the end" nvme read /dev/nvme0n1 -s $((SIZE_MIB * 1048576 / bs)) -c $((n - 1)) -z 32768 -d /tmp/b
[ "$PEER" = nvmet ] || grep -q 'LBA Out of Range' /tmp/expect.out || { cat /tmp/expect.out; fail "another status than LBA Out of Range"; }

if [ "$PEER" != nvmet ]; then # nvmet supports neither
  step "verify, compare"
  expect "write" nvme write /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -z 32768 -d /tmp/a
  expect "verify" nvme verify /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1))
  expect "compare" nvme compare /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -z 32768 -d /tmp/a
  refuse "compare with other bytes" nvme compare /dev/nvme0n1 -s "$(slba 64)" -c $((n - 1)) -z 32768 -d /tmp/c
  grep -qi 'compare failure' /tmp/expect.out || { cat /tmp/expect.out; fail "another status than Compare Failure"; }
fi

step "log pages and features"
for words in "error-log /dev/nvme0" "smart-log /dev/nvme0" "fw-log /dev/nvme0" "changed-ns-list-log /dev/nvme0" "effects-log /dev/nvme0" \
  "get-log /dev/nvme0 -i 2 -l 512" "get-feature /dev/nvme0 -f 7" "get-feature /dev/nvme0 -f 6 -H" \
  "get-feature /dev/nvme0 -f 0xb -H" "get-feature /dev/nvme0 -f 0xf -H"; do
  expect "$words" nvme $words
done
refuse "a log page that does not exist" nvme get-log /dev/nvme0 -i 0xbf -l 512
refuse "a feature that does not exist" nvme get-feature /dev/nvme0 -f 0xbf
[ "$PEER" = nvmet ] || for words in "supported-log-pages /dev/nvme0" "get-log /dev/nvme0 -i 2 -l 256 -o 256" "get-feature /dev/nvme0 -f 2" "get-feature /dev/nvme0 -f 6 -s 1" \
  "get-feature /dev/nvme0 -f 6 -s 3" "get-feature /dev/nvme0 -f 0xe"; do
  expect "$words" nvme $words
done

step "reset"
# The kernel prints the lines below at the reset of a working controller.
DMESG_ALLOW='resetting controller'
random_file /tmp/a 64
expect "write" dd if=/tmp/a of=/dev/nvme0n1 bs=64k oflag=direct
for i in 1 2 3; do
  expect "reset $i" nvme reset /dev/nvme0
  within 10 "a live controller" is_live
  expect "read" dd if=/dev/nvme0n1 of=/tmp/b bs=64k count=1 iflag=direct
  cmp /tmp/a /tmp/b || fail "other bytes after reset $i"
done
disconnect
