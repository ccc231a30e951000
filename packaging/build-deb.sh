#!/usr/bin/env bash
# Builds the Debian package and prints its path.
#
#   packaging/build-deb.sh [PROFILE]     of cargo: release (default), dev
#
# The package needs at least the C library of the build machine: build on the oldest Debian to support. VERSION in the environment is the
# package's version (default: the workspace's and revision 1).
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
compression=(--compress-type xz --compress-system) # cargo-deb itself is built without optimization
[[ $profile == release ]] || compression=(--compress-type gz --fast --compress-system) # for tests: unpacking xz on an emulated machine is slow
tools=$PWD/target/tools
package=target/package

if ! command -v cargo-deb >/dev/null && [[ ! -x $tools/bin/cargo-deb ]]; then
  cargo install cargo-deb --version ^3 --locked --debug --root "$tools" >&2 # --debug: a quarter of the build time
fi
# A package for tests has the programs that the other tests built: features of the whole workspace. Otherwise each has its own features.
if [[ $profile == dev ]]; then
  cargo build --locked --workspace --bins --example speed >&2 # an example, so that features of tests are on
else
  cargo build --locked -p pilotlab --profile "$profile" >&2
  cargo build --locked -p pilotlight --profile "$profile" >&2
fi
rm -rf "$package"
mkdir -p "$package"/completions/{bash,zsh,fish}
for program in pilotlight pilotlab; do
  built=target/${profile/#dev/debug}/$program
  "$built" man --out "$package/pages"
  "$built" completions bash >"$package/completions/bash/$program"
  "$built" completions zsh >"$package/completions/zsh/_$program"
  "$built" completions fish >"$package/completions/fish/$program.fish"
done
packaging/docs.py "$package/docs"
PATH=$tools/bin:$PATH cargo-deb --quiet "${compression[@]}" --no-build --strip --no-dbgsym --profile "$profile" -p pilotlight ${VERSION:+--deb-version "$VERSION"} \
  --output target/debian/
