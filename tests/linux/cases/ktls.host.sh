# No target: the tests of crates/tls with kernel TLS, in a guest because the kernels of build machines often have none.
NEEDS_SERVER=no
CAPTURE=no
[[ $PILOTLIGHT == */release/* ]] && PROFILE=release || PROFILE=test
TEST_PROGRAM=$(cd "$REPO" && cargo test --workspace --test kernel --profile $PROFILE --no-run --message-format=json 2>"$OUT/cargo.log" |
  sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
[[ -x $TEST_PROGRAM ]] || { cat "$OUT/cargo.log" >&2; die "the tests of kernel TLS cannot be built"; }
. "$HARNESS/program.sh"
GUEST_PROGRAM=kernel_tests GUEST_PROGRAM_PATH=$TEST_PROGRAM
