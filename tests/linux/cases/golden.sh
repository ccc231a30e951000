# Not a test: the traffic for the vectors of tests/linux/golden.sh. Small, slow, and of bytes that compress well.
# bytes OCTAL COUNT: that byte, repeated.
bytes() { head -c "$2" /dev/zero | tr '\0' "\\$1"; }
bytes 132 4096 >/tmp/small
bytes 303 24576 >/tmp/big

# session LABEL OPTION...: one association; its connections are the next in the capture.
session() {
  step "$@"
  shift
  connect --keep-alive-tmo=1 "$@"
  sleep 2 # a few keep-alives
  expect "write in the capsule" nvme write /dev/nvme0n1 -s 8 -c 7 -z 4096 -d /tmp/small
  expect "write with FUA" nvme write /dev/nvme0n1 -s 16 -c 7 -z 4096 -d /tmp/small -f
  expect "write after R2T" nvme write /dev/nvme0n1 -s 64 -c 47 -z 24576 -d /tmp/big
  expect "read" nvme read /dev/nvme0n1 -s 64 -c 47 -z 24576 -d /tmp/back
  cmp /tmp/big /tmp/back
  expect "flush" nvme flush /dev/nvme0n1 -n 1
  expect "write zeroes" nvme write-zeroes /dev/nvme0n1 -s 8 -c 7
  expect "deallocate" nvme dsm /dev/nvme0n1 -n 1 --ad -s 16,64 -b 8,48 -a 0,0
  refuse "compare" nvme compare /dev/nvme0n1 -s 8 -c 7 -z 4096 -d /tmp/small
  refuse "verify" nvme verify /dev/nvme0n1 -s 8 -c 7
  expect "block device discards" blkdiscard -o 8192 -l 4096 /dev/nvme0n1
  expect "smart-log" nvme smart-log /dev/nvme0
  expect "get-feature" nvme get-feature /dev/nvme0 -f 7
  expect "get-property" nvme get-property /dev/nvme0 -o 0x1c
  refuse "an unknown log page" nvme get-log /dev/nvme0 -i 0xbf -l 16
  SIZE_MIB=$((SIZE_MIB + 8))
  host resize $SIZE_MIB
  within 10 "the new size" has_sectors /dev/nvme0n1 $((SIZE_MIB * 2048))
  sleep 1
  disconnect
}

step "discovery"
expect "discover" nvme discover -t tcp -a "$ADDRESS" -s "$PORT"
session plain
session digests --hdr-digest --data-digest
DMESG_ALLOW='.'
