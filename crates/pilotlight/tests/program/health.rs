//! Probes: `status --ready` and `--healthy` of a server that works, sleeps, is stopped, or has ended.

use crate::process::{Server, text};

/// Exit code and the only line of a probe.
fn probe(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let output = server.admin(&[&["status"], args].concat());
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    (output.status.code(), printed.trim_end().to_owned())
}

#[test]
fn running_and_sleeping_servers_are_healthy_and_stopped_ones_are_not() {
    for policy in ["sandman", "static"] {
        let mut server = Server::start(&["--listen", "127.0.0.1:0", "--reactors", "3", "--policy", policy]);
        let (code, printed) = probe(&server, &["--ready"]);
        assert_eq!((code, printed.as_str()), (Some(0), "ready: 3 reactors, listening on 1 address"));
        let (code, printed) = probe(&server, &["--healthy", "--timeout", "60s"]);
        assert_eq!((code, printed.as_str()), (Some(0), "healthy: 3 reactors work or sleep"), "{policy}");
        server.signal("STOP");
        for option in ["--ready", "--healthy"] {
            let (code, printed) = probe(&server, &[option, "--timeout", "300ms"]);
            assert_eq!(code, Some(1));
            assert!(printed.ends_with("no answer over the control socket within 300ms"), "{printed}");
        }
        server.kill();
        let (code, printed) = probe(&server, &["--healthy"]);
        assert!(code == Some(1) && printed.contains("not healthy: the server of"), "{printed}");
    }
}

#[test]
fn a_probe_refuses_other_options() {
    for args in [
        &["--ready", "--healthy"][..],
        &["--ready", "--json"],
        &["--healthy", "--watch"],
        &["--ready", "--timeout", "0s"],
    ] {
        assert_eq!(crate::process::run(&[&["status"], args].concat()).status.code(), Some(2), "{args:?}");
    }
}
