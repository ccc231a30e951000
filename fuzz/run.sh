#!/bin/sh
# Runs every fuzz target for SECONDS, as many at once as there are CPUs, and fails on a crash: fuzz/run.sh SECONDS [TARGET...]
# New inputs go to a scratch directory; the committed corpus is only read. See README.md.
set -eu

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "SKIPPED fuzzing: there is no nightly toolchain (rustup toolchain install nightly --profile minimal)"
    exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "cargo-fuzz is missing: installing it from crates.io"
    cargo install cargo-fuzz --locked
fi

# One target, whose output is printed when it is over.
if [ $# = 1 ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir "$scratch/new"
    status=0
    cargo +nightly fuzz run "$1" "$scratch/new" "fuzz/corpus/$1" -- -max_total_time="$seconds" -max_len=4096 -timeout=10 \
        -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 >"$scratch/output" 2>&1 || status=$?
    { echo "fuzzing $1 for $seconds s" && cat "$scratch/output"; } >&2
    [ $status = 0 ] && exit
    echo "FAILED $1: the input is in fuzz/artifacts/$1/; cargo +nightly fuzz run $1 INPUT repeats it" >&2
    exit 1
fi

cargo +nightly fuzz build
[ $# -gt 0 ] || set -- $(cargo +nightly fuzz list)
printf '%s\n' "$@" | xargs -r -P "$(nproc)" -n 1 "$root/fuzz/run.sh" "$seconds"
