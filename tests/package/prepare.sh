#!/bin/bash
# Builds the root file system of the guest: Debian 12 with systemd, udev and nvme-cli, by mmdebstrap, as an ext4 image.
#
#   tests/package/prepare.sh [--refresh]
#
# It is kept in the cache of tests/linux (common.sh), so a second run is fast; --refresh builds it again from the mirror.
set -euo pipefail
. "$(dirname "$0")/../linux/common.sh"
IMAGE=$CACHE/package-root.ext4
PACKAGES=systemd,systemd-sysv,udev,kmod,nvme-cli

for need in mmdebstrap mke2fs fakeroot; do command -v "$need" >/dev/null || die "needs $need: apt install mmdebstrap e2fsprogs fakeroot"; done
mkdir -p "$CACHE"
exec 9>"$CACHE/package-root.lock"
flock 9
stamp=$(sha256sum <"$REPO/tests/package/prepare.sh")
[[ ${1:-} == --refresh || $(cat "$IMAGE.stamp" 2>/dev/null) != "$stamp" ]] || { say "root file system: $IMAGE"; exit; }

say "root file system: mmdebstrap, bookworm with $PACKAGES"
work=$CACHE/package-root.work
rm -rf "$work" "$IMAGE"*
mkdir -p "$work"
# Documentation and translations are omitted. Files are not synced: dpkg's write order is irrelevant for a tree built in one run.
mmdebstrap --quiet --variant=minbase --include="$PACKAGES" --dpkgopt=force-unsafe-io \
  --customize-hook='find "$1"/usr/share/locale "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/lib/udev/hwdb.d "$1"/usr/lib/udev/hwdb.bin -type f -delete' \
  --customize-hook='echo pilotlight-test >"$1"/etc/hostname' \
  bookworm "$work/root.tar" "$MIRROR/debian"
# As root or fakeroot: the owners of files are those of the archive.
fakeroot bash -euc 'mkdir "$0/root"; tar -C "$0/root" --exclude "./dev/*" -xf "$0/root.tar"; mke2fs -q -t ext4 -O ^has_journal -d "$0/root" "$1" 600M' \
  "$work" "$IMAGE"
rm -rf "$work"
echo "$stamp" >"$IMAGE.stamp"
say "root file system: $IMAGE, $(du -m "$IMAGE" | cut -f1) MiB, after $SECONDS s"
