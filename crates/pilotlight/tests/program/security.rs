//! Protection of the server's process.

use std::fs;

use super::process::{Server, run, text};

/// The seccomp mode of each thread of a server (proc(5), `Seccomp`), and whether it has `no_new_privs`.
fn modes(server: &Server) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned()).unwrap_or_default()
    };
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.map(|status| (field(&status, "Seccomp:"), field(&status, "NoNewPrivs:"))).collect()
}

#[test]
fn every_thread_of_a_server_has_the_seccomp_filter() {
    let filtered = ("2".to_owned(), "1".to_owned());
    let server = Server::start(&["--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--page=127.0.0.1:0"]);
    let threads = modes(&server);
    assert!(threads.len() > 4 && threads.iter().all(|mode| *mode == filtered), "{threads:?}");
    drop(server);
    let server = Server::start(&["--listen=127.0.0.1:0", "--seccomp=off"]);
    let inherited = fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2");
    let threads = modes(&server);
    assert!(inherited || threads.iter().all(|(mode, _)| mode == "0"), "{threads:?}");
}

#[test]
fn an_unknown_seccomp_action_is_refused() {
    let refused = run(&["serve", "--check", "--seccomp=on"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("expected kill, log or off"), "{}", text(&refused.stderr));
}
