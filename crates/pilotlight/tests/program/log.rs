//! The log: one line per event, as text, JSON or for the journal. Repeated lines are rate-limited, and suppressed lines are counted.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::process::{Server, command, run};

/// Limit of lines per cause in a window of the log.
const LINES: usize = 10;

#[test]
fn repeated_warnings_are_limited_and_counted() {
    const REFUSED: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = \"control.sock\"\n[limits]\nmax_connections = 1\n\
                [[subsystem]]\nnqn = \"nqn.2024-05.com.example:disks\"\n\
                [[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n";
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    let _first = server.connect();
    for _ in 0..REFUSED {
        // closed at once; the next one is accepted after this one
        let refused = TcpStream::connect(server.address()).unwrap();
        let _ = std::io::copy(&mut &refused, &mut std::io::sink());
    }
    let (mut lines, mut left_out) = (0, 0);
    while lines + left_out < REFUSED {
        let line = server.expect_log("too many connections");
        let count =
            line.split_once(" more lines").and_then(|(before, _)| before.rsplit_once('(')?.1.parse::<usize>().ok());
        match count {
            Some(count) => left_out += count,
            None => lines += 1,
        }
    }
    assert_eq!(lines + left_out, REFUSED);
    // on a busy machine this can span several windows of ten seconds
    assert!(lines <= 10 * LINES, "{lines} lines");
}

/// A connection of a host that is refused.
fn connect_refused(address: &str) {
    let refused =
        run(&["load", "--target", address, "--hostnqn", "nqn.2026-01.test:no", "--nqn", NQN, "--number_ios", "1"]);
    assert_ne!(refused.status.code(), Some(0));
}

const NQN: &str = "nqn.2024-05.com.example:disks";
const ARGS: [&str; 6] = ["--listen", "127.0.0.1:0", "--nqn", NQN, "--allow-host", "nqn.2026-01.test:yes"];

#[test]
fn a_json_line_has_host_peer_and_reason_of_a_refusal() {
    let server = Server::start(&[&ARGS[..], &["--log-format", "json"]].concat());
    connect_refused(&server.address().to_string());
    let line: Value = serde_json::from_str(&server.expect_log("Connect refused")).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"WARN".into(), &"Connect refused".into()));
    assert_eq!((&line["host"], &line["nqn"]), (&"nqn.2026-01.test:no".into(), &NQN.into()));
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    assert!(line["reason"].as_str().unwrap().contains("allowed_hosts"), "{line}");
    assert!(line["time"].as_str().unwrap().ends_with('Z') && line["target"].is_string(), "{line}");
}

/// Configuration problems are log lines in JSON.
#[test]
fn configuration_problems_are_json_in_the_json_format() {
    let refused = run(&["serve", "--log-format", "json", "--nqn", "x", "--listen", "y"]);
    assert_eq!(refused.status.code(), Some(2));
    let lines: Vec<Value> = refused.stderr.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let keys: Vec<_> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"--nqn") && keys.contains(&"--listen"), "{lines:?}");
}

#[test]
fn journal_lines_have_a_priority_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let (reader, writer) = std::io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let meta = file.metadata().unwrap();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--admin-socket", socket.to_str().unwrap()]);
    serve.env("JOURNAL_STREAM", format!("{}:{}", meta.dev(), meta.ino())).stdout(Stdio::null()).stderr(file);
    let mut child = serve.spawn().unwrap();
    drop(serve); // closes its end of the pipe
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert!(first.starts_with("<6>INFO pilotlight") || first.starts_with("<4>WARN pilotlight"), "{first}");
}

#[test]
fn a_silent_peer_is_logged_with_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = \"a.sock\"\n[limits]\nicreq_timeout = \"100ms\"\n\
         [log]\nformat = \"json\"\n[[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    let silent = TcpStream::connect(server.address()).unwrap();
    let line: Value = serde_json::from_str(&server.expect_log("connection refused")).unwrap();
    assert_eq!(line["peer"], silent.local_addr().unwrap().to_string());
    assert!(line["reason"].as_str().unwrap().contains("icreq_timeout"), "{line}");
}
