#!/bin/bash
# Installs the Debian package in a guest with systemd (Debian 12 under QEMU, no KVM) and uses it as an operator does (guest.sh).
#
#   tests/package/run.sh PACKAGE.deb [KERNEL]     kernels: those of tests/linux/prepare.sh (default 6.12)
#
# The guest does not write to the root file system of prepare.sh. The files of a run are in OUT (default target/package/test). Status 0:
# passed. 1: failed. 2: not ready.
set -euo pipefail
. "$(dirname "$0")/../linux/common.sh"
HERE=$REPO/tests/package

[[ $# -ge 1 && -e $1 ]] || die 'usage: tests/package/run.sh PACKAGE.deb [KERNEL]; packaging/build-deb.sh builds the package'
DEB=$1
KERNEL=${2:-6.12}
OUT=${OUT:-$REPO/target/package/test}
IMAGE=$CACHE/package-root.ext4
TIMEOUT_S=${TIMEOUT_S:-600} # for the whole guest
[[ -e $CACHE/kernel-$KERNEL/.stamp ]] || die "kernel $KERNEL is not prepared: run tests/linux/prepare.sh $KERNEL"
[[ -e $IMAGE.stamp ]] || die 'no root file system: run tests/package/prepare.sh'

# A package of a later version with the same content.
later_package() {
  local dir=$OUT/later
  dpkg-deb -R "$DEB" "$dir"
  sed -i 's/^Version: .*/&+later/' "$dir/DEBIAN/control"
  dpkg-deb --root-owner-group -Zgzip -z1 -b "$dir" "$1" >/dev/null
  rm -rf "$dir"
}

guest_archive() {
  local dir=$OUT/archive
  mkdir -p "$dir/package"
  install -m 755 "$HERE/init" "$dir/init"
  install -m 644 "$HERE/guest.sh" "$dir/package/"
  install -m 644 "$DEB" "$dir/package/pilotlight.deb"
  later_package "$dir/package/later.deb"
  { cat "$CACHE/kernel-$KERNEL/initramfs.cpio"; pack "$dir"; } >"$OUT/initrd"
  rm -rf "$dir"
}

boot() {
  qemu_command
  # tcg, one thread: see tests/linux/guest.sh. The second disk has a serial number for a udev rule.
  TMPDIR=$OUT timeout --kill-after=5 "$TIMEOUT_S" "${QEMU[@]}" \
    -accel tcg,thread=single -cpu max -smp 2 -m 1024 -M q35 -nodefaults -no-user-config -display none -no-reboot -serial stdio \
    -drive "file=$IMAGE,if=none,id=root,format=raw,snapshot=on" -device virtio-blk-pci,drive=root \
    -drive "file=$OUT/device.img,if=none,id=device,format=raw" -device virtio-blk-pci,drive=device,serial=PACKAGETEST \
    -kernel "$CACHE/kernel-$KERNEL/vmlinuz" -initrd "$OUT/initrd" \
    -append 'console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable systemd.show_status=no' </dev/null 2>"$OUT/qemu.log" |
    tee "$OUT/console" | tr -d '\r' | sed -u 's/^/  /'
}

rm -rf "$OUT"
mkdir -p "$OUT"
truncate -s 64M "$OUT/device.img"
guest_archive
say "$(basename "$DEB") in Debian 12 with Linux $(cat "$CACHE/kernel-$KERNEL/version")"
boot || say "QEMU ended with $?: $(cat "$OUT/qemu.log")"
rm -f "$OUT/initrd" "$OUT/device.img"
if grep -q '^PACKAGE-TEST-STATUS 0' "$OUT/console"; then say "passed after $SECONDS s"; exit; fi
say "failed after $SECONDS s; see $OUT/console"
exit 1
