#!/bin/sh
# Runs every fuzz target for SECONDS and fails on a crash: fuzz/run.sh SECONDS
# New inputs go to a scratch directory; the committed corpus is only read. See README.md.
set -eu

seconds=${1:?usage: fuzz/run.sh SECONDS}
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

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in $(cargo +nightly fuzz list); do
    echo "fuzzing $target for $seconds s"
    mkdir -p "$scratch/$target"
    if ! cargo +nightly fuzz run "$target" "$scratch/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1; then
        echo "FAILED $target: the input is in fuzz/artifacts/$target/; cargo +nightly fuzz run $target INPUT repeats it" >&2
        exit 1
    fi
done
