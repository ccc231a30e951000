# Paths of the harness's downloads, and how to start the unpacked tools. Sourced by prepare.sh and run.sh; only definitions.

HARNESS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HARNESS/../.." && pwd)
CACHE=${PILOTLIGHT_LINUX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pilotlight/linux}
ROOT=$CACHE/root                       # the unpacked Debian packages: a self-contained tree, including libc
MIRROR=${PILOTLIGHT_DEBIAN_MIRROR:-http://deb.debian.org}

# The tested kernels: the name used here -> Debian suite and package. They are of the cloud flavour, which is small and has no RDMA device in
# software; `6.12-generic` is the flavour for any machine.
kernel_suite() {
  case $1 in
    6.12 | 6.12-generic | 6.1) echo bookworm ;;
    5.10) echo bullseye ;;
    backports) echo trixie-backports ;; # the current newest kernel of Debian for a stable release
    *) die "unknown kernel '$1'; known: 6.12 6.12-generic 6.1 5.10 backports" ;;
  esac
}
kernel_package() {
  case $1 in
    6.12) echo linux-image-6.12-cloud-amd64 ;;
    6.12-generic) echo linux-image-6.12-amd64 ;;
    *) echo linux-image-cloud-amd64 ;;
  esac
}

say() { printf 'linux-harness: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

LIBRARY_PATH_IN_ROOT=$ROOT/lib/x86_64-linux-gnu:$ROOT/usr/lib/x86_64-linux-gnu:$ROOT/usr/lib/x86_64-linux-gnu/ceph

# tool NAME PROGRAM ARGS...: run an unpacked program under the unpacked libc, as NAME.
tool() {
  local name=$1 program=$2
  shift 2
  "$ROOT/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --argv0 "$name" --library-path "$LIBRARY_PATH_IN_ROOT" "$program" "$@"
}

# The command line that starts QEMU, as an array: `timeout` needs a program, not a function.
qemu_command() {
  QEMU=("$ROOT/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path "$LIBRARY_PATH_IN_ROOT"
    "$ROOT/usr/bin/qemu-system-x86_64" -L "$ROOT/usr/share/qemu" -L "$ROOT/usr/share/seabios")
  export QEMU_MODULE_DIR=$ROOT/usr/lib/x86_64-linux-gnu/qemu
}

# pack DIR: the tree as a newc archive on standard output, padded to four bytes so that another may follow.
pack() {
  (cd "$1" && find . -print0 | LC_ALL=C sort -z | tool cpio "$ROOT/bin/cpio" --null -o -H newc --owner=0:0 --quiet --reproducible)
}
