# Header and data digests, each alone and both. The kernel refuses a connection whose ICResp differs, so a connection
# proves the negotiation; a wrong digest would be in its log and end the connection.
for options in "--hdr-digest" "--data-digest" "--hdr-digest --data-digest"; do
  step "connect $options"
  # shellcheck disable=SC2086 # two options
  connect $options
  random_file /tmp/a 1024
  expect "dd out" dd if=/tmp/a of=/dev/nvme0n1 bs=512k oflag=direct conv=fsync
  expect "dd in" dd if=/dev/nvme0n1 of=/tmp/b bs=512k count=2 iflag=direct
  cmp /tmp/a /tmp/b || fail "other bytes came back"
  expect "zero" dd if=/dev/zero of=/dev/nvme0n1 bs=512k count=2 oflag=direct
  expect "blockcheck" blockcheck load /dev/nvme0n1 --blocks 256 --threads 4 --seconds 1
  cat /tmp/expect.out
  expect "zero" dd if=/dev/zero of=/dev/nvme0n1 bs=512k count=2 oflag=direct
  disconnect
done
