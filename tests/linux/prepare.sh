#!/bin/bash
# Downloads the packages of the Linux initiator harness and builds one initramfs per kernel:
#
#   tests/linux/prepare.sh [--refresh] [KERNEL...]      kernels: 6.12 (default), 6.1, 5.10, backports, 6.12-generic (RDMA)
#   tests/linux/prepare.sh 6.12-generic siw             and the module siw for it; needs gcc-12 and make
#
# Debian packages are downloaded and verified by apt with a separate configuration and unpacked with `dpkg -x` under $CACHE (common.sh):
# nothing is installed and no file outside that folder changes. Existing files are kept, so a second run is fast; --refresh looks for newer
# packages.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$HARNESS/apt.sh"

# Programs of the host and of the guest. fio needs 70 MB of libraries and has a separate archive, as have the programs for RDMA.
TOOLS=(qemu-system-x86 cpio kmod busybox-static nvme-cli fio e2fsprogs dmsetup iproute2 ibverbs-utils ibverbs-providers)
GUEST_PROGRAMS=(usr/sbin/nvme sbin/mke2fs sbin/e2fsck usr/sbin/filefrag sbin/dmsetup)
MODULES=(virtio_pci virtio_net virtio_blk virtio_scsi sd_mod nvme-tcp ext4 crc32c-intel crc32c nvmet nvmet-tcp dm-mod dm-flakey nvme-auth dh_generic hmac sha256_generic sha512_generic
  tls nvme-keyring gcm ctr ghash-generic aes_generic)
RDMA_MODULES=(rdma_rxe crc32_generic nvme-rdma nvmet-rdma ib_uverbs libcrc32c) # of the generic flavour
RDMA_PROGRAMS=(usr/bin/rdma usr/bin/ibv_devinfo usr/lib/x86_64-linux-gnu/libibverbs/lib{rxe,siw}-rdmav34.so)
# TLS needs newer programs than the guest's release has: archives of their own, /tls in the guest, with a C library of their own. Those of
# Debian 13 derive keys against the specification (libnvme before 1.16) and have GnuTLS before 3.8.11; Debian testing, for the kernel
# `backports`, has newer ones.
tls_suites() { echo trixie; [[ " ${kernels[*]} " != *' backports '* ]] || echo forky; }
TLS_TOOLS=(nvme-cli ktls-utils keyutils)
TLS_PROGRAMS=(usr/sbin/nvme usr/sbin/tlshd usr/bin/keyctl)

prepare_tools() {
  local stamp="tools 1 ${TOOLS[*]}"
  [[ $refresh == no && $(cat "$ROOT/.stamp" 2>/dev/null) == "$stamp" ]] && { say "tools: in $ROOT"; return; }
  update_lists bookworm
  local closure
  closure=$(apt_for bookworm apt-get -s install --no-install-recommends "${TOOLS[@]}" | awk '/^Inst /{print $2}')
  say "tools: unpacking $(wc -w <<<"$closure") packages into $ROOT"
  rm -rf "$ROOT"
  # shellcheck disable=SC2086 # a list of package names
  unpack bookworm "$ROOT" $closure
  echo "$stamp" >"$ROOT/.stamp"
}

# copy_program PATH DIR: a program of the unpacked tree with its libraries.
copy_program() {
  local program=$ROOT/$1 dir=$2 library
  install -D "$program" "$dir/$1"
  "$ROOT/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$LIBRARY_PATH_IN_ROOT" --list "$program" |
    awk '/not found/{print "missing " $1 > "/dev/stderr"; exit 1} $3 ~ /^\//{print $3}' |
    while read -r library; do install -D -m 755 "$library" "$dir/usr/lib/$(basename "$library")"; done
}

# prepare_tls SUITE: tls-SUITE.cpio, in which /tls/bin has the programs, started under their own loader and libraries in /tls/lib.
prepare_tls() {
  local suite=$1 archive=$CACHE/tls-$1 dir=$CACHE/tls from=$CACHE/tls.unpacked stamp closure program
  stamp="tls 1 ${TLS_TOOLS[*]} ${TLS_PROGRAMS[*]}"
  [[ $refresh == no && $(cat "$archive.stamp" 2>/dev/null) == "$stamp" ]] && return
  rm -f "$CACHE/apt/$suite/updated" # its packages of a week ago may be gone
  update_lists "$suite"
  closure=$(apt_for "$suite" apt-get -s install --no-install-recommends "${TLS_TOOLS[@]}" | awk '/^Inst /{print $2}')
  rm -rf "$dir" "$from"
  # shellcheck disable=SC2086 # a list of package names
  unpack "$suite" "$from" $closure
  mkdir -p "$dir"/tls/{bin,lib,programs}
  cp -L "$from/usr/lib64/ld-linux-x86-64.so.2" "$dir/tls/lib/"
  for program in "${TLS_PROGRAMS[@]}"; do
    install "$from/$program" "$dir/tls/programs/"
    "$dir/tls/lib/ld-linux-x86-64.so.2" --library-path "$from/usr/lib/x86_64-linux-gnu" --list "$from/$program" |
      awk '/not found/{print "missing " $1 > "/dev/stderr"; exit 1} $3 ~ /^\// && $1 !~ /ld-linux/ {print $3}' | xargs install -m 755 -t "$dir/tls/lib"
    program=${program##*/}
    printf '#!/bin/sh\nexec /tls/lib/ld-linux-x86-64.so.2 --argv0 %s --library-path /tls/lib /tls/programs/%s "$@"\n' "$program" "$program" >"$dir/tls/bin/$program"
    chmod +x "$dir/tls/bin/$program"
  done
  pack "$dir" >"$archive.cpio"
  rm -rf "$dir" "$from"
  echo "$stamp" >"$archive.stamp"
  say "TLS of $suite: archive of $(($(stat -c %s "$archive.cpio") / 1048576)) MiB"
}

# The part of the guest that is the same for all kernels.
build_userland() {
  local dir=$1
  mkdir -p "$dir"/{bin,sbin,usr/bin,usr/sbin,usr/lib,proc,sys,dev,tmp,run,mnt,etc/nvme,case}
  ln -s usr/lib "$dir/lib"
  ln -s usr/lib "$dir/lib64"
  install "$ROOT/bin/busybox" "$dir/bin/busybox"
  install "$ROOT/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$dir/usr/lib/ld-linux-x86-64.so.2"
  local program
  for program in "${GUEST_PROGRAMS[@]}"; do copy_program "$program" "$dir"; done
  ln -s mke2fs "$dir/sbin/mkfs.ext4"
  ln -s e2fsck "$dir/sbin/fsck.ext4"
  install -m 644 "$ROOT/etc/mke2fs.conf" "$dir/etc/mke2fs.conf"
  echo 'nqn.2014-08.org.nvmexpress:uuid:5f1b1a3e-3f5c-4c0a-9c5e-0c2a1d3b4e5f' >"$dir/etc/nvme/hostnqn"
  echo '5f1b1a3e-3f5c-4c0a-9c5e-0c2a1d3b4e5f' >"$dir/etc/nvme/hostid"
}

# copy_modules KERNELROOT VERSION DIR MODULE...: the modules and their dependencies, decompressed, with a new modules.dep.
copy_modules() {
  local from=$1 version=$2 dir=$3 module file
  shift 3
  local base=lib/modules/$version
  mkdir -p "$dir/usr/$base"
  cp "$from/$base"/modules.{order,builtin,builtin.modinfo} "$dir/usr/$base/"
  tool depmod "$ROOT/bin/kmod" -b "$from" "$version"
  for module; do
    tool modprobe "$ROOT/bin/kmod" -d "$from" -S "$version" --show-depends "$module" 2>/dev/null || say "  ($version has no module $module)"
  done | awk '$1 == "insmod"{print $2}' | sort -u | while read -r file; do
    local to=$dir/usr/$base/${file#*"$base"/}
    mkdir -p "$(dirname "$to")"
    case $file in
      *.xz) xz -dc "$file" >"${to%.xz}" ;;
      *.zst) zstd -dqc "$file" >"${to%.zst}" ;;
      *) cp "$file" "$to" ;;
    esac
  done
  tool depmod "$ROOT/bin/kmod" -b "$dir" "$version"
}

prepare_kernel() {
  local name=$1 suite package stamp dir=$CACHE/kernel-$1 modules=("${MODULES[@]}")
  [[ $name != *-generic ]] || modules+=("${RDMA_MODULES[@]}")
  suite=$(kernel_suite "$name")
  stamp="kernel 1 $(cat "$ROOT/.stamp") $(sha256sum <"$HARNESS/prepare.sh")"
  [[ $refresh == no && $(cat "$dir/.stamp" 2>/dev/null) == "$stamp" ]] && { say "kernel $name: $(cat "$dir/version") in $dir"; return; }
  [[ $name != backports ]] || rm -f "$CACHE/apt/$suite/updated" # its packages of a week ago may be gone
  update_lists "$suite"
  package=$(newest_image "$suite" "$(kernel_package "$name")")
  say "kernel $name: $package of $suite"
  rm -rf "$dir"
  mkdir -p "$dir"
  local version=${package#linux-image-}
  # Since 7.x the image and its modules are separate packages, below /usr.
  # shellcheck disable=SC2046 # a list of package names
  unpack "$suite" "$dir/unpacked" "$package" $(apt_for "$suite" apt-cache depends "$package" |
    awk -v version="$version" '$1 == "Depends:" && $2 ~ /^linux-(base|binary|modules)-/ && substr($2, length($2) - length(version)) == "-" version {print $2}')
  [[ -e $dir/unpacked/lib/modules ]] || ln -s usr/lib "$dir/unpacked/lib"
  local image
  for image in "$dir/unpacked/boot/vmlinuz-$version" "$dir/unpacked/lib/modules/$version/vmlinuz"; do
    [[ ! -e $image ]] || mv "$image" "$dir/vmlinuz"
  done
  build_userland "$dir/guest"
  copy_modules "$dir/unpacked" "$version" "$dir/guest" "${modules[@]}"
  pack "$dir/guest" >"$dir/initramfs.cpio"
  echo "$version" >"$dir/version"
  rm -rf "$dir/unpacked" "$dir/guest"
  echo "$stamp" >"$dir/.stamp"
  say "kernel $name: initramfs of $(($(stat -c %s "$dir/initramfs.cpio") / 1048576)) MiB"
}

# prepare_programs NAME PATH...: NAME.cpio, programs and plug-ins of the unpacked tree that only some cases need.
prepare_programs() {
  local archive=$CACHE/$1 stamp program
  stamp="$1 1 ${*:2} $(cat "$ROOT/.stamp")"
  [[ $refresh == no && $(cat "$archive.stamp" 2>/dev/null) == "$stamp" ]] && return
  rm -rf "$archive"
  for program in "${@:2}"; do copy_program "$program" "$archive"; done
  pack "$archive" >"$archive.cpio"
  rm -rf "$archive"
  echo "$stamp" >"$archive.stamp"
}

# prepare_siw: siw.cpio, the module siw (iWARP) for the kernel 6.12-generic, built from Debian's source because no kernel of Debian has it.
prepare_siw() {
  local archive=$CACHE/siw dir=$CACHE/siw version headers stamp
  [[ -e $CACHE/kernel-6.12-generic/.stamp ]] || die "siw needs the kernel: prepare.sh 6.12-generic siw"
  version=$(cat "$CACHE/kernel-6.12-generic/version")
  stamp="siw 1 $version"
  [[ $(cat "$archive.stamp" 2>/dev/null) == "$stamp" ]] && return
  for need in gcc-12 make strip; do command -v "$need" >/dev/null || die "siw needs $need: apt-get install gcc-12 make"; done
  say "siw: building for $version"
  rm -rf "$dir"
  unpack bookworm "$dir" linux-source-6.12 "linux-headers-$version" "linux-headers-${version%-amd64}-common" "linux-kbuild-${version%-amd64}"
  headers=$dir/usr/src/linux-headers-$version
  sed -i "s|/usr/src/|$dir/usr/src/|" "$headers/Makefile"
  tar -C "$dir" -xf "$dir/usr/src/linux-source-6.12.tar.xz" --strip-components=4 --wildcards '*/drivers/infiniband/sw/siw'
  # Without the type information (BTF) of the module, which needs another program.
  make -s -C "$headers" M="$dir/siw" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >&2
  mkdir "$dir/guest"
  strip --strip-debug -o "$dir/guest/siw.ko" "$dir/siw/siw.ko"
  pack "$dir/guest" >"$archive.cpio"
  rm -rf "$dir"
  echo "$stamp" >"$archive.stamp"
}

refresh=no
siw=no
kernels=()
for argument; do
  case $argument in
    --refresh) refresh=yes ;;
    siw) siw=yes ;;
    -*) die "unknown option '$argument'; usage: prepare.sh [--refresh] [KERNEL...] [siw]" ;;
    *) kernel_suite "$argument" >/dev/null; kernels+=("$argument") ;;
  esac
done
[[ ${#kernels[@]} -gt 0 ]] || kernels=(6.12)
for need in apt-get dpkg xz; do command -v "$need" >/dev/null || die "needs $need (a Debian machine)"; done

mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9                                # one prepare at a time; the tests may run it concurrently
prepare_tools
for kernel in "${kernels[@]}"; do prepare_kernel "$kernel"; done
prepare_programs fio usr/bin/fio
prepare_programs rdma "${RDMA_PROGRAMS[@]}"
[[ $siw == no ]] || prepare_siw
for suite in $(tls_suites); do prepare_tls "$suite"; done
