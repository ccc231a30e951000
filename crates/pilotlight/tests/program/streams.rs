//! Standard output that fails: a closed pipe, and a full disk.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGPIPE;

use super::process::{Server, command, run, text};

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A file on a full disk.
fn full() -> Stdio {
    std::fs::File::options().write(true).open("/dev/full").unwrap().into()
}

fn into(stdout: Stdio, args: &[&str]) -> Output {
    command(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// A rule for every command.
fn check(args: &[&str]) {
    let output = into(closed(), args);
    let printed = text(&output.stderr);
    assert_eq!((output.status.signal(), printed.as_str()), (Some(SIGPIPE), ""), "{args:?} into a closed pipe");
    let output = into(full(), args);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?} onto a full disk: {printed}");
    assert!(printed.contains("cannot write to standard output") && printed.lines().count() == 1, "{args:?}: {printed}");
}

#[test]
fn output_errors_of_commands_without_a_server() {
    check(&["--help"]);
    check(&["load", "--help"]);
    check(&["--version"]);
    check(&["serve", "--check"]);
    check(&["doctor"]);
    check(&["doctor", "--json"]);
    check(&["restore", "--dry-run"]);
    check(&["restore", "--dry-run", "--json"]);
}

#[test]
fn output_errors_of_commands_that_use_a_server() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--reactors", "1"]);
    let nqn = server.message()["subsystems"][0]["nqn"].as_str().unwrap();
    let (socket, target) = (server.socket().to_str().unwrap(), server.address().to_string());
    check(&["status", "--socket", socket]);
    check(&["status", "--json", "--socket", socket]);
    check(&["status", "--watch", "0.1", "--socket", socket]);
    check(&["namespace", "list", "--socket", socket]);
    check(&["namespace", "list", "--json", "--socket", socket]);
    check(&["set", "policy", "static", "--socket", socket]);
    check(&["load", "--target", &target, "--nqn", nqn, "--number_ios", "8"]);
    check(&["load", "--target", &target, "--nqn", nqn, "--number_ios", "8", "--json"]);
}

/// Ends the process if a test has failed.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guard {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

#[test]
fn a_server_continues_after_its_output_and_log_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let socket = socket.to_str().unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--reactors", "1"];
    let mut command = command(&[&args[..], &["--admin-socket", socket]].concat());
    let mut server = Guard(command.stdout(closed()).stderr(closed()).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    let mut serves = || {
        while !run(&["namespace", "list", "--socket", socket]).status.success() {
            assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
            assert!(Instant::now() < until, "the server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    serves();
    let added = run(&["namespace", "add", "mem:1MiB", "--socket", socket]); // which is logged
    assert!(added.status.success(), "{}", text(&added.stderr));
    serves();
    server.signal(Signal::TERM);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}
