#!/bin/bash
# Builds the container image as packaging/container/build.sh does, without a daemon (buildah), on a Debian built by mmdebstrap instead of
# the base image, which needs a registry; and runs it: the server responds as the image's user, and ends at SIGTERM.
#
#   tests/package/container.sh PACKAGE.deb
#
# Status 0: passed. 1: failed. 2: not ready.
set -euo pipefail
. "$(dirname "$0")/../linux/common.sh"
BASE=$CACHE/container-base.tar
OUT=$REPO/target/package/container

[[ $# == 1 && -e $1 ]] || die 'usage: tests/package/container.sh PACKAGE.deb; packaging/build-deb.sh builds the package'
[[ $(id -u) == 0 ]] || die 'needs root, to build without namespaces'
for need in buildah mmdebstrap; do command -v "$need" >/dev/null || die "needs $need: apt install buildah mmdebstrap"; done
fail() { say "FAILED: $*"; cat "$OUT/server.log" >&2 2>/dev/null || true; exit 1; }
builder() { BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs buildah --root "$OUT/storage" --runroot "$OUT/run" "$@"; }
inside() { builder run "$container" -- "$@"; }

# Without PID namespaces its PID is the same on both sides.
server_pid() { sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$OUT/status.json" 2>/dev/null; }
stop_server() { local pid; pid=$(server_pid); [[ -z $pid ]] || kill -TERM "$pid" 2>/dev/null || true; }
trap 'stop_server; wait' EXIT

rm -rf "$OUT"
mkdir -p "$OUT" "$CACHE"
if [[ ! -e $BASE ]]; then
  say 'base of the container: mmdebstrap, bookworm'
  mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io \
    --customize-hook='find "$1"/usr/share/locale "$1"/usr/share/doc "$1"/usr/share/man -type f -delete' --format=tar bookworm "$BASE.new" "$MIRROR/debian"
  mv "$BASE.new" "$BASE"
fi
base=$(builder from scratch)
builder add -q "$base" "$BASE" / >/dev/null
builder commit -q --rm "$base" docker.io/library/debian:bookworm-slim >/dev/null
builder build -q --pull-never --format docker -t pilotlight --build-arg "DEB=$(basename "$1")" -f "$REPO/packaging/container/Dockerfile" "$(dirname "$1")"
container=$(builder from --pull-never localhost/pilotlight)

[[ $(inside id -u) == 65532 ]] || fail 'the image runs as another user than its own'
inside pilotlight --version
# The image's command, except for the port: the container uses the machine's network here.
inside pilotlight serve --listen 127.0.0.1:0 --namespace 'file:/var/lib/pilotlight/disk.img?size=16MiB' >"$OUT/server.log" 2>&1 &
server=$!
end=$((SECONDS + 60))
until inside pilotlight status --json >"$OUT/status.json" 2>"$OUT/status.log"; do
  kill -0 $server 2>/dev/null || fail 'the server has ended'
  ((SECONDS < end)) || fail "the server does not answer: $(cat "$OUT/status.log")"
  sleep 0.2
done
stop_server
wait $server || fail "the server ended with $?"
grep -q 'everything is finished and flushed' "$OUT/server.log" || fail 'the server has not ended in order'
trap - EXIT
rm -rf "$OUT"
say "container: passed after $SECONDS s"
