//! Error messages: each has its cause once, and the operation.
//!
//! The rule for every error type: either its text contains its cause, or the cause is its `#[source]`; never both, because the program
//! prints an error with all its sources. A field `source` whose text is in the message is spelled `r#source`, which `thiserror` does not
//! treat as the source.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::process::{run, text};

/// Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
    files.into_iter().filter(rust).chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// The text after each `#[error(`, up to the next one.
fn errors(code: &str) -> Vec<&str> {
    code.split("#[error(").skip(1).map(|text| text.split("\n}").next().unwrap_or(text)).collect()
}

/// Whether an error has its cause both in its text and as its source.
fn has_cause_twice(error: &str) -> bool {
    let (text, fields) = error.split_once(")]").unwrap_or((error, ""));
    let is_source = |line: &str| ["#[from]", "#[source]"].iter().any(|mark| line.contains(mark));
    let names_it = |line: &str| line.trim_start().trim_start_matches("pub ").starts_with("source:");
    let has_source = fields.lines().any(|line| is_source(line) || names_it(line));
    let message = ["{source", "{0", ".0", "{why", "{error", " source"].iter().any(|name| text.contains(name));
    has_source && message
}

#[test]
fn no_error_has_its_cause_in_both_text_and_source() {
    let twice = ["\"{path}: {source}\")]\nA {\n    source: io::Error,\n", "\"no: {0}\")]\nB(#[from] io::Error),\n"];
    assert!(twice.into_iter().all(has_cause_twice));
    let once = ["\"{path}: {source}\")]\nA {\n    r#source: io::Error,\n", "transparent)]\nB(#[from] io::Error),\n"];
    assert!(!once.into_iter().any(has_cause_twice));

    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = 0;
    for path in sources(crates).into_iter().filter(|path| path.components().any(|part| part.as_os_str() == "src")) {
        let code = fs::read_to_string(&path).unwrap();
        for error in errors(&code) {
            seen += 1;
            assert!(!has_cause_twice(error), "{}: {error}", path.display());
        }
    }
    assert!(seen > 100, "only {seen} errors found");
}

/// No phrase is repeated in a message.
fn check(args: &[&str], cause: &str) {
    let output = run(args);
    let printed = text(&output.stderr);
    assert!(!output.status.success(), "{args:?}");
    assert_eq!(printed.matches(cause).count(), 1, "{args:?}: {printed}");
    let mut parts: Vec<&str> = printed.split([':', '\n']).map(str::trim).filter(|part| part.contains(' ')).collect();
    let all = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), all, "{args:?}: {printed}");
}

#[test]
fn a_message_contains_its_cause_once() {
    let home = tempfile::tempdir().unwrap();
    let name = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = ["serve", "--reactors", "1", "--admin-socket", "none", "--namespace", "mem:1MiB", "--listen"];
    check(&[&server[..], &[&address]].concat(), "Address already in use");
    drop(taken);
    check(&["load", "--target", &address, "--number_ios", "1"], "Connection refused");
    let socket = name("no/control.sock");
    fs::write(name("no"), "").unwrap();
    check(&["status", "--socket", &socket], "Not a directory");
    let serve = ["serve", "--reactors", "1", "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--admin-socket"];
    check(&[&serve[..], &[&socket]].concat(), "os error");
    check(&["serve", "--config", &name("none")], "no such file");
}
