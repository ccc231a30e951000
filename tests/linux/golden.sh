#!/bin/bash
# Regenerates crates/nvme/tests/golden/linux-KERNEL: a stock initiator and the kernel's own target (nvmet), each in a guest, with their
# traffic captured at the initiator's network card. Run manually if needed; the vectors are committed.
set -euo pipefail
. "$(dirname "$0")/common.sh"
kernel=${1:-6.12}
out=$REPO/target/linux/golden-$kernel
to=$REPO/crates/nvme/tests/golden/linux-$kernel

OUT=$out CAPTURE=full KEEP=1 PEER=nvmet "$HARNESS/run.sh" golden "$kernel"
rustc --edition 2024 -O -o "$out/pcap2hex" "$HARNESS/tools/pcap2hex.rs"
mkdir -p "$out/hex" "$to"
rm -f "$to"/*.hex
"$out/pcap2hex" "$out/main.pcap" "$(cat "$out/port")" "$out/hex"
# The case's connections, in order. (The kernel connects the admin queue first, then the I/O queue.)
names=(discovery admin io digests-admin digests-io)
[[ $(find "$out/hex" -name '*-host.hex' | wc -l) == "${#names[@]}" ]] || die "not the connections that the case should make"
for number in "${!names[@]}"; do
  for side in host target; do
    {
      echo "# Linux $(cat "$CACHE/kernel-$kernel/version"), connection '${names[number]}': what the $side sent. Made by tests/linux/golden.sh."
      cat "$out/hex/$number-$side.hex"
    } >"$to/${names[number]}-$side.hex"
  done
done
