#!/usr/bin/env bash
# Tests python/pilotlab-ray: its unit tests, types and style (of python/pilotlab too), and a figure of SANDMAN on a local Ray cluster of which a node is killed.
#
#     tests/ray/run.sh [PROGRAM]    PROGRAM: default target/debug/pilotlab
#
# Exits with 77 and the reason if it cannot run. Installs the packages of requirements.txt under target/ray-python (600 MB).
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() { echo "SKIPPED: $1"; exit 77; }

program=$(realpath "${1:-target/debug/pilotlab}")
[[ -x $program ]] || skip "$program does not exist: cargo build -p pilotlab"
versions=tests/ray/requirements.txt
packages=("$PWD/python/pilotlab" "$PWD/python/pilotlab-ray")
python=$PWD/target/ray-python

if ! cmp -s "$versions" "$python/installed.txt"; then
  python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || skip 'requires Python 3.11 with venv'
  python3 -m venv --clear "$python"
  "$python/bin/pip" --quiet install -r "$versions" || skip "the packages of $versions cannot be installed"
  cp "$versions" "$python/installed.txt"
fi

dir=$(mktemp -d /tmp/pilotlab-ray.XXXXXX)
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir # for the programs on the nodes
export RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0 RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=120
export PYTHONPYCACHEPREFIX=$dir/compiled RUFF_CACHE_DIR=$python/cache-ruff MYPY_CACHE_DIR=$python/cache-mypy

"$python/bin/pip" --quiet install --no-build-isolation --no-deps --force-reinstall "${packages[@]}"
for package in "${packages[@]}"; do
  (
    cd "$package"
    "$python/bin/ruff" check . ../../tests/ray
    "$python/bin/ruff" format --check . ../../tests/ray
    "$python/bin/mypy"
    "$python/bin/pytest" --quiet -p no:cacheprovider
  )
done
"$python/bin/python" tests/ray/cluster.py "$program" "$dir"
