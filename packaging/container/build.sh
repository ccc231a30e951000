#!/usr/bin/env bash
# Builds the container image from the Debian package.
#
#   packaging/container/build.sh [PROFILE]     of cargo: release (default), ci, dev
#
# BUILDER is docker (default), podman or buildah; IMAGE the image's name (default pilotlight); BUILD_OPTIONS further options of the builder.
set -euo pipefail
cd "$(dirname "$0")/../.."
deb=$(packaging/build-deb.sh "${1:-release}" | tail -1)
# shellcheck disable=SC2086 # words
"${BUILDER:-docker}" build ${BUILD_OPTIONS:-} -t "${IMAGE:-pilotlight}" --build-arg "DEB=$(basename "$deb")" -f packaging/container/Dockerfile "$(dirname "$deb")"
