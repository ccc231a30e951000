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
compression=(--compress-type xz)
[[ $profile == release ]] || compression=(--compress-type gz --fast) # for tests: unpacking xz on an emulated machine is slow
tools=$PWD/target/tools
pages=target/package/pages
docs=target/package/docs

if ! command -v cargo-deb >/dev/null && [[ ! -x $tools/bin/cargo-deb ]]; then
  cargo install cargo-deb --version ^3 --locked --debug --root "$tools" >&2 # --debug: a quarter of the build time
fi
# A package for tests has the program that the other tests built: features of the whole workspace.
selection=(-p pilotlight)
[[ $profile != dev ]] || selection=(--workspace --bins --example speed) # an example, so that features of tests are on
cargo build --locked "${selection[@]}" --profile "$profile" >&2
rm -rf "$pages" "$docs"
mkdir -p "$pages" "$docs"
PILOTLIGHT_PAGES=$PWD/$pages cargo test --quiet --locked --workspace --bin pilotlight pages >&2
# The operator's documents and their linked files, in the same folders so that the links work.
(
  shopt -s nullglob
  cd docs
  cp --parents operating.md operate/*.md configuration.md configuration-keys.md doctor.md policies.md budget.md hosts.md background.md metrics-server.md top.svg page.png budgets.svg tolerance.svg "../$docs/"
)
PATH=$tools/bin:$PATH cargo-deb --quiet "${compression[@]}" --no-build --strip --no-dbgsym --profile "$profile" -p pilotlight ${VERSION:+--deb-version "$VERSION"} \
  --output target/debian/
