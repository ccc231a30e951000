//! Error messages state their cause once.

use std::fs;

use super::process::{run, text};
use super::results;

/// No phrase occurs twice in a message.
fn check(args: &[&str], cause: &str) {
    let output = run(args);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{args:?}");
    assert_eq!(said.matches(cause).count(), 1, "{args:?}: {said}");
    let mut parts: Vec<&str> = said.split([':', '\n']).map(str::trim).filter(|part| part.contains(' ')).collect();
    let all = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), all, "{args:?}: {said}");
}

#[test]
fn a_cause_is_stated_once() {
    let home = tempfile::tempdir().unwrap();
    let none = home.path().join("none").to_str().unwrap().to_owned();
    for command in ["trace", "read", "run", "report"] {
        check(&[command, &none], "No such file");
    }
    check(&["claims", "--claims", &none, "--map", &none], "No such file");
    check(&["measure", "--settings", &none, "--", "true"], "No such file");
}

#[test]
fn damaged_results_are_not_reported_as_missing() {
    let home = tempfile::tempdir().unwrap();
    let folder = results::folder(home.path(), "a", 1.0);
    let path = folder.join("results.json");
    let whole = fs::read_to_string(&path).unwrap();
    let folder = folder.to_str().unwrap();
    for command in ["compare", "advise", "report"] {
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        check(&[command, folder], "cannot be read");
        let said = text(&run(&[command, folder]).stderr);
        assert!(said.contains("results.json") && !said.contains("holds no results"), "{said}");
        fs::remove_file(&path).unwrap();
        check(&[command, folder], "holds no results");
    }
}

#[test]
fn a_moved_command_has_a_hint() {
    for (command, now) in [("bench", "`pilotlab run FILE`"), ("serve", "`pilotlight serve`")] {
        let output = run(&[command, "x"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("`{command}` moved to {now}")) && !said.contains("similar"), "{said}");
    }
}

#[test]
fn a_run_without_a_file_suggests_one() {
    let said = text(&run(&["run"]).stderr);
    let example = "pilotlab run experiments/quick.toml";
    assert!(said.contains("<FILE>") && said.contains(example), "{said}");
    assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quick.toml").is_file());
}
