#!/usr/bin/env bash
# Tests the live page in Debian's Chromium, and with --picture draws docs/page.png. Exits with 77 if a requirement is missing.
#   tests/page/run.sh [--picture]
set -euo pipefail
cd "$(dirname "$0")"

lacks() { echo "the page is not tested in a browser: $1"; exit 77; }
command -v node >/dev/null || lacks 'no node (Debian: nodejs)'
command -v npm >/dev/null || lacks 'no npm'
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
[[ -n $CHROMIUM ]] || lacks 'no chromium (apt-get install chromium)'
export CHROMIUM
PILOTLIGHT=${PILOTLIGHT:-$(realpath ../../target/debug/pilotlight)}
[[ -x $PILOTLIGHT ]] || { echo "no $PILOTLIGHT: cargo build -p pilotlight"; exit 1; }
export PILOTLIGHT

modules=../../target/page
mkdir -p "$modules"
cp package.json package-lock.json ./*.mjs "$modules/"
cd "$modules"
# compared by contents, as a checkout or a copy changes times
if ! cmp -s package-lock.json node_modules/installed-from.json; then
  npm ci --no-audit --no-fund --ignore-scripts || lacks 'npm ci failed'
  cp package-lock.json node_modules/installed-from.json
fi
if [[ ${1:-} == --picture ]]; then
  exec node picture.mjs "$OLDPWD/../../docs/page.png"
fi
exec node --test page.test.mjs
