//! The OS threads of a running server by name: a new one is a decision, and is added here with its reason.

use std::collections::BTreeSet;
use std::fs;

use crate::process::{Server, wait_for};

/// Threads of every server, and why each is one.
const ALWAYS: [&str; 11] = [
    "acceptor",       // waits for connections
    "authentication", // computes for long
    "budget",         // keeps the power budget; writes the file of the goals
    "control",        // waits for programs, and changes namespaces, which may block
    "housekeeping",   // all that waits for nothing
    "log",            // waits for the reader of the log
    "pilotlight",     // waits for signals
    "reaper",         // closes storage, which may block
    "reload",         // reads files and opens storage, which may block
    "reservations",   // writes the records of reservations, and waits for requests of other hosts
    "utilization",    // asks file systems, which may block
];
/// Sets knobs, where the machine has any.
const ACTUATION: &str = "actuation";

fn names(server: &Server) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).filter(|name| name != ACTUATION).collect()
}

/// That a server started with these options has these threads beside [`ALWAYS`].
fn check(options: &[&str], more: &[&str]) {
    let server = Server::start(&[&["--listen=127.0.0.1:0", "--reactors=1"], options].concat());
    server.request(&["status"]);
    let expected: BTreeSet<String> = ALWAYS.iter().chain(more).map(|&name| name.to_owned()).collect();
    // a thread names itself, and `limit` ends by itself without a floor
    wait_for("the threads of a server", || {
        let names = names(&server);
        names.is_superset(&expected) && !names.contains("limit")
    });
    assert_eq!(names(&server), expected, "{options:?}");
}

#[test]
fn a_server_has_only_the_threads_that_must_wait_apart() {
    check(&["--sensor=none"], &["reactor-0"]);
    let dir = tempfile::tempdir().unwrap();
    let file = format!("--namespace=file:{}?size=1MiB", dir.path().join("disk").display());
    let all = ["--sensor=modelled", "--energy-shares=equal", "--metrics=127.0.0.1:0", "--page=127.0.0.1:0", &file];
    // the sensor may hang, readers of metrics and page may be slow, and reads of the file and of its free space may block
    check(&all, &["reactor-0", "power", "metrics", "page", "blocking-0", "blocking-1", "volumes"]);
}
