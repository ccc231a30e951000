//! The verifier for the guest is compiled by the first case that needs it, while others run concurrently.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// A fake compiler: records each call, and fails if another one runs in the same folder.
const COMPILER: &str = r#"#!/bin/bash
while [[ $# -gt 0 ]]; do
  if [[ $1 == -o ]]; then program=$2; fi
  shift
done
echo called >>"$CALLS"
mkdir "$(dirname "$program")/compiling" || exit 1
echo program >"$program"
rmdir "$(dirname "$program")/compiling"
"#;

/// Several cases at once, each in its own shell.
const CASES: &str = r#"
set -euo pipefail
. "$1/common.sh"
REPO=$2
. "$1/guest.sh"
for case in {1..8}; do
  mkdir -p "$REPO/$case/bin"
  (build_tool "$REPO/$case") &
  cases+=($!)
done
for case in "${cases[@]}"; do wait "$case"; done
"#;

fn build_by_eight_cases(repository: &Path) -> Output {
    let compiler = repository.join("rustc");
    fs::write(&compiler, COMPILER).expect("a file");
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).expect("its own file");
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/linux");
    let path = format!("{}:{}", repository.display(), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    bash.args(["-c", CASES, "bash"]).arg(harness).arg(repository);
    bash.env("PATH", path).env("CALLS", repository.join("calls")).output().expect("bash runs")
}

#[test]
fn cases_that_start_at_once_compile_the_verifier_once() {
    let repository = tempfile::tempdir().expect("a directory");
    let output = build_by_eight_cases(repository.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = fs::read_to_string(repository.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 1, "the compiler was called more than once");
    for case in 1..=8 {
        let program = repository.path().join(format!("{case}/bin/blockcheck"));
        assert_eq!(fs::read_to_string(&program).expect("each case has it"), "program\n");
    }
    fs::remove_file(repository.path().join("calls")).expect("it is there");
    assert!(build_by_eight_cases(repository.path()).status.success());
    assert!(!repository.path().join("calls").exists(), "what is there is not compiled again");
}
