//! Configurations that are refused, checked, or cannot start.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::process::{Server, run, text};

#[test]
fn a_check_of_a_valid_configuration_succeeds_without_starting() {
    let output = run(&["serve", "--check", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("The configuration is good.\npilotlight "), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_check_prints_json() {
    let output = run(&["serve", "--check", "--json", "--namespace", "mem:1MiB", "--nqn", "nqn.2024-05.com.example:a"]);
    let message: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(message["event"], "checked");
    assert_eq!(message["subsystems"][0]["nqn"], "nqn.2024-05.com.example:a");
    assert_eq!(message["subsystems"][0]["namespaces"][0]["nsid"], 1);
}

#[test]
fn an_invalid_configuration_exits_with_code_2() {
    for args in [
        &["serve", "--listen", "localhost:4420"][..],
        &["serve", "--config", "/nonexistent.toml"],
        &["serve", "--config", "/dev/null"],
        &["serve", "--config", "/dev/null", "--nqn", "x"],
        &["serve", "--no-such-option"],
        &["serve", "--block-size", "four"],
        &["no-such-command"],
        &[],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
        assert!(!text(&output.stderr).contains('\x1b'), "colours, and no terminal: {output:?}");
    }
}

#[test]
fn a_configuration_must_be_a_regular_file() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    for path in [fifo.as_path(), dir.path()] {
        let output = run(&["serve", "--check", "--config", path.to_str().unwrap()]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("--config") && (message.contains("regular file") || message.contains("directory")),
            "{message}"
        );
    }
}

#[test]
fn an_unknown_key_is_reported_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    fs::write(&path, "[server]\nlisten = [\"127.0.0.1:4420\"]\ncroes = [0]\n").unwrap();
    let output = run(&["serve", "--check", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("a.toml:3:1") && message.contains("did you mean `cores`?"), "{message}");
}

#[test]
fn a_control_socket_that_cannot_be_created_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let check = |path: &std::path::Path| {
        run(&["serve", "--check", "--listen", "127.0.0.1:0", "--admin-socket", path.to_str().unwrap()])
    };
    for path in [file.clone(), file.join("a.sock")] {
        let output = check(&path);
        assert_eq!(output.status.code(), Some(2), "{path:?}: {output:?}");
        assert!(text(&output.stderr).contains("--admin-socket"), "{output:?}");
    }
    let output = check(&dir.path().join("new/a.sock"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!dir.path().join("new").exists(), "a check makes nothing");
}

#[test]
fn a_folder_of_reservations_that_cannot_be_used_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [file, read_only, config] = ["file", "read-only", "a.toml"].map(|name| dir.path().join(name));
    fs::write(&file, "text").unwrap();
    fs::create_dir(&read_only).unwrap();
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o500)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let new = dir.path().join("new");
    for (folder, is_usable) in [
        (&file, false),
        (&file.join("below"), false),
        (&read_only, is_root),
        (&read_only.join("below"), is_root),
        (&new.join("below"), true),
        (&dir.path().to_owned(), true),
    ] {
        let server = format!("[server]\nlisten = [\"127.0.0.1:0\"]\nreservations = {folder:?}\n");
        let subsystem = "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n";
        let namespace = "[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n";
        fs::write(&config, server + subsystem + namespace).unwrap();
        let output = run(&["serve", "--check", "--config", config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(if is_usable { 0 } else { 2 }), "{folder:?}: {output:?}");
        let expected = format!("cannot use the folder {} (`reservations` in [server]", folder.display());
        assert_eq!(text(&output.stderr).contains(&expected), !is_usable, "{output:?}");
    }
    assert!(!new.exists(), "a check makes nothing");
}

#[test]
fn an_address_in_use_exits_with_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--listen", &address, "--namespace", "mem:1MiB", "--admin-socket", "none"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains(&address), "{output:?}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn help_and_version_exit_with_code_0() {
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    let help = run(&["serve", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn the_connect_line_has_the_assigned_port() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"]);
    let port = server.address().port();
    assert_ne!(port, 0);
    let nqn = server.message()["subsystems"][0]["nqn"].as_str().unwrap();
    let line = format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {nqn}");
    assert_eq!(server.message()["subsystems"][0]["connect"][0], line);
    assert_eq!(server.connect().active_namespaces().unwrap(), [1]);
}

/// The check finds every error of the start, unless it reports a limitation.
#[test]
fn a_check_reports_limits_of_this_machine() {
    let memory = ["--namespace", "mem:99999TiB"];
    let elsewhere = ["--listen", "192.0.2.7:4420"]; // reserved for documentation
    for (args, expected) in
        [(&memory[..], "mem:99999TiB"), (&elsewhere, "192.0.2.7:4420: the address is not one of this machine")]
    {
        let output = run(&[&["serve", "--check"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{args:?}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
    // reactors without pinned cores have no frequencies on any machine
    let governor = ["--reactors", "2", "--policy", "governor"];
    let [checked, started] =
        [&["serve", "--check"][..], &["serve", "--admin-socket", "none", "--listen", "127.0.0.1:0"]]
            .map(|command| run(&[command, &governor].concat()));
    assert_eq!((checked.status.code(), started.status.code()), (Some(2), Some(1)), "{checked:?} {started:?}");
    for output in [checked, started] {
        assert!(text(&output.stderr).contains("policy governor needs"), "{output:?}");
    }
}

#[test]
fn a_check_only_warns_about_an_address_in_use() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"]);
    let output = run(&["serve", "--check", "--listen", &server.address().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("in use"), "{output:?}");
    assert_eq!(server.connect().active_namespaces().unwrap(), [1]);
}
