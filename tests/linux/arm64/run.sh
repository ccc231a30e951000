#!/bin/bash
# `serve` and `load --verify` of a program built for aarch64 in a guest with two processors: a stock Debian kernel in qemu-system-aarch64.
#
#   tests/linux/arm64/run.sh PROGRAM
#
# OUT=DIR    folder of the console's and QEMU's log (default target/linux/arm64)
#
# Status 0: the guest reported that the case passed. 1: it failed or timed out. 2: a requirement is missing.
#
# qemu-user runs programs for aarch64 on this kernel and has no Linux AIO; here they run on an aarch64 kernel. Kernel and busybox are Debian
# packages, unpacked under $CACHE; the guest's C library is that of Debian's cross compiler.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
ARCH=arm64
. "$HARNESS/apt.sh"

[[ $# -eq 1 ]] || die "usage: arm64/run.sh PROGRAM"
PROGRAM=$1
[[ -x $PROGRAM ]] || die "no program at $PROGRAM"
OUT=${OUT:-$REPO/target/linux/arm64}
LIBRARIES=/usr/aarch64-linux-gnu/lib
KERNEL=$CACHE/kernel-arm64
TIMEOUT_S=600                        # for the whole guest, on a busy machine
for need in "qemu-system-aarch64 qemu-system-arm" "cpio cpio" "apt-get apt" "dpkg dpkg"; do
  command -v "${need% *}" >/dev/null || die "needs ${need% *} (Debian: ${need#* })"
done
[[ -e $LIBRARIES/libc.so.6 ]] || die "needs $LIBRARIES/libc.so.6 (Debian: libc6-dev-arm64-cross)"

# Modules for the disk.
MODULES=(virtio/virtio virtio/virtio_ring virtio/virtio_mmio block/virtio_blk)

prepare() {
  local stamp package version module
  stamp="arm64 1 ${MODULES[*]}"
  [[ $(cat "$KERNEL/.stamp" 2>/dev/null) != "$stamp" ]] || return 0
  update_lists bookworm
  package=$(newest_image bookworm linux-image-cloud-arm64)
  version=${package#linux-image-}
  say "arm64: $package of bookworm"
  rm -rf "$KERNEL"
  mkdir -p "$KERNEL/modules"
  unpack bookworm "$KERNEL/unpacked" "$package" busybox-static
  mv "$KERNEL/unpacked/boot/vmlinuz-$version" "$KERNEL/vmlinuz"
  mv "$KERNEL/unpacked/bin/busybox" "$KERNEL/busybox"
  for module in "${MODULES[@]}"; do mv "$KERNEL/unpacked/lib/modules/$version/kernel/drivers/$module.ko" "$KERNEL/modules/"; done
  rm -rf "$KERNEL/unpacked"
  echo "$stamp" >"$KERNEL/.stamp"
}

# The guest's files, as an archive on standard output.
initramfs() {
  local dir=$OUT/guest
  mkdir -p "$dir"/{bin,case,dev,host,lib/modules,proc,run,sys,tmp}
  install "$KERNEL/busybox" "$dir/bin/busybox"
  install -m 644 "$KERNEL"/modules/*.ko "$dir/lib/modules/"
  install "$LIBRARIES"/{ld-linux-aarch64.so.1,libc.so.6,libm.so.6,libgcc_s.so.1} "$dir/lib/"
  aarch64-linux-gnu-strip -o "$dir/host/pilotlight" "$PROGRAM"
  install "$HARNESS/arm64/init" "$dir/init"
  install -m 644 "$HARNESS"/guest/{main,lib}.sh "$HARNESS/arm64/case.sh" "$dir/case/"
  : >"$dir/case/env"
  (cd "$dir" && find . | LC_ALL=C sort | cpio -o -H newc --quiet)
  rm -rf "$dir"
}

mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
prepare
exec 9>&-
rm -rf "$OUT"
mkdir -p "$OUT"
initramfs >"$OUT/initramfs.cpio"
truncate -s 64M "$OUT/disk.img"
started=$SECONDS
# One thread for both virtual processors: `wfe` then yields to the other one. No watchdog: a busy host looks like a lockup.
timeout --kill-after=5 "$TIMEOUT_S" qemu-system-aarch64 -M virt -cpu max -accel tcg,thread=single -smp 2 -m 1024 -nodefaults -no-user-config \
  -display none -no-reboot -serial stdio -kernel "$KERNEL/vmlinuz" -initrd "$OUT/initramfs.cpio" \
  -drive "file=$OUT/disk.img,format=raw,if=none,id=disk" -device virtio-blk-device,drive=disk \
  -append "console=ttyAMA0 panic=-1 quiet nowatchdog" </dev/null >"$OUT/console" 2>"$OUT/qemu.log" || say "QEMU ended with $?"
rm -f "$OUT"/*.cpio "$OUT"/*.img
if grep -q '^LINUX-CASE-STATUS 0' "$OUT/console"; then
  say "arm64: passed after $((SECONDS - started)) s; see $OUT"
else
  tail -n 60 "$OUT/console" "$OUT/qemu.log" >&2
  say "arm64: failed after $((SECONDS - started)) s"
  exit 1
fi
