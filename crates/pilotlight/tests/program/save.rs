//! `config save`: the file contains all changes made over the control socket, and a SIGHUP then changes nothing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use crate::process::{Server, text};

const NQN: &str = "nqn.2024-05.com.example:disks";
const A: &str = "nqn.2024-05.com.example:a";
const B: &str = "nqn.2024-05.com.example:b";

fn configuration(dir: &Path) -> String {
    format!(
        "# rack 7\n[server]\nlisten = \"127.0.0.1:0\" # any port\n\n[admin]\nsocket = \"{}/control.sock\"\nstate = \"none\"\n\n\
         [[subsystem]]\nnqn = \"{NQN}\" # the disks\nallowed_hosts = [\"{A}\"]\n\n\
         # scratch\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\" # grows\n\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend = \"mem:1MiB\"\n",
        dir.display()
    )
}

fn start(dir: &Path) -> (Server, PathBuf) {
    let file = dir.join("server.toml");
    fs::write(&file, configuration(dir)).unwrap();
    (Server::start(&["--config", file.to_str().unwrap()]), file)
}

#[test]
fn changes_are_saved_and_sighup_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, file) = start(dir.path());
    let nothing = server.request(&["config", "save"]);
    assert_eq!((&nothing["changes"], fs::read_to_string(&file).unwrap()), (&json!([]), configuration(dir.path())));
    for change in [
        &["host", "add", B][..],
        &["namespace", "add", "mem:2MiB", "--nsid", "7"],
        &["namespace", "remove", "2"],
        &["namespace", "resize", "1", "4MiB"],
        &["namespace", "show", "7", "--host", B, "--only"],
        &["set", "policy", "static"],
        &["set", "cap", "100MB/s", "--namespace", "7"],
        &["set", "cap", "200MB/s", "--host", B],
        &["set", "priority", "5", "--namespace", "1"],
        &["set", "minimum", "100MB/s", "--priority", "5"],
        &["set", "tolerance", "0.2"],
    ] {
        server.request(change);
    }
    let saved = server.request(&["config", "save"]);
    assert!(saved["changes"].as_array().is_some_and(|changes| changes.len() >= 10), "{saved}");
    let text_saved = fs::read_to_string(&file).unwrap();
    for kept in ["# rack 7", "# any port", "# the disks", "# scratch", "# grows"] {
        assert!(text_saved.contains(kept), "{kept}: {text_saved}");
    }
    assert_eq!(server.request(&["host", "list"])["subsystems"][0]["configured"], true);
    let before = (
        server.request(&["namespace", "list"]),
        server.request(&["host", "list"]),
        server.request(&["status"])["caps"].clone(),
    );
    assert!(before.0["namespaces"].as_array().unwrap().iter().all(|one| one["configured"] == true), "{}", before.0);
    server.signal("HUP");
    server.expect_log("configuration read again");
    let after = (
        server.request(&["namespace", "list"]),
        server.request(&["host", "list"]),
        server.request(&["status"])["caps"].clone(),
    );
    assert_eq!(before, after);
    let status = server.request(&["status"]);
    assert_eq!(status["policy"]["name"], "static");
    assert_eq!(
        (&status["priorities"]["named"][0]["priority"], &status["priorities"]["named"][0]["manual"]),
        (&json!(5), &json!(false))
    );
    assert_eq!(server.request(&["config", "save"])["changes"], json!([]), "there is nothing more");
    drop(server);
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let namespaces = server.request(&["namespace", "list"])["namespaces"].clone();
    assert_eq!((&namespaces[0]["size_bytes"], &namespaces[1]["hosts"]), (&json!(4 << 20), &json!([B])));
    assert_eq!(server.request(&["status"])["caps"], before.2, "a restart starts from it");
}

#[test]
fn parameters_are_saved_in_the_order_they_were_set() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    fs::write(&file, configuration(dir.path()) + "\n[policy]\nname = \"sandman\"\nwindow = 64\n").unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    server.request(&["set", "policy", "sandman", "min_requests=3", "window=64"]);
    server.request(&["config", "save"]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(
        saved.find("min_requests = ") < saved.find("window = ") && saved.contains("min_requests = \"3\""),
        "{saved}"
    );
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(server.request(&["config", "save"])["changes"], json!([]));
}

#[test]
fn other_storage_under_an_nsid_keeps_the_settings_of_the_nsid() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    let keys = "shrink = true\nmax_bytes_per_s = \"100MB/s\" # shared\ntolerance = \"0.2\"\npriority = 5\n";
    let text = configuration(dir.path()).replace("# grows\n", &format!("# grows\n{keys}"));
    fs::write(&file, &text).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    server.request(&["namespace", "remove", "1"]);
    server.request(&["namespace", "add", "null:2MiB", "--nsid", "1", "--block-size", "512"]);
    server.request(&["set", "cap", "100MB/s", "--namespace", "1"]);
    server.request(&["config", "save"]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains(keys) && saved.contains("backend = \"null:2MiB\" # grows\n"), "{saved}");
    let goals = |server: &Server| {
        let status = server.request(&["status"]);
        (
            status["priorities"]["named"].clone(),
            status["goals"].clone(),
            status["caps"][0]["operator_bytes_per_s"].clone(),
        )
    };
    let before = goals(&server);
    drop(server);
    assert_eq!(goals(&Server::start(&["--config", file.to_str().unwrap()])), before, "a restart starts from it");
}

#[test]
fn a_file_added_again_keeps_its_block_size_and_uuid_after_a_restart() {
    const UUID: &str = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    let dir = tempfile::tempdir().unwrap();
    let (file, disk) = (dir.path().join("server.toml"), dir.path().join("disk.img"));
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let backend = format!("file:{}", disk.display());
    let text = configuration(dir.path())
        .replace("\"mem:1MiB\" # grows", &format!("\"{backend}\" # grows\nblock_size = 4096 # large"));
    fs::write(&file, text).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    server.request(&["namespace", "remove", "1"]);
    server.request(&["namespace", "add", &backend, "--nsid", "1", "--block-size", "512", "--uuid", UUID]);
    server.request(&["config", "save"]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains("block_size = 512 # large") && saved.contains(&format!("uuid = \"{UUID}\"")), "{saved}");
    drop(server);
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.request(&["namespace", "list"])["namespaces"][0]["block_bytes"], 512);
}

#[test]
fn a_save_keeps_settings_that_wait_for_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (server, file) = start(dir.path());
    let edited = configuration(dir.path()) + "\n[limits]\nmax_connections = 7\n";
    fs::write(&file, &edited).unwrap();
    server.signal("HUP");
    server.expect_log("limits.max_connections has changed; it takes effect at a restart");
    server.expect_log("configuration read again");
    server.request(&["host", "add", B]);
    server.request(&["config", "save"]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains("max_connections = 7") && saved.contains(B), "{saved}");
}

#[test]
fn a_file_changed_meanwhile_is_only_replaced_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let (server, file) = start(dir.path());
    server.request(&["host", "add", B]);
    let edited = configuration(dir.path()) + "# edited\n";
    fs::write(&file, &edited).unwrap();
    let refused = server.admin(&["config", "save"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--force") && fs::read_to_string(&file).unwrap() == edited, "{refused:?}");
    server.request(&["config", "save", "--force"]);
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains(B) && !saved.contains("# edited"), "{saved}");
    let elsewhere = server.admin(&["config", "save", "--to", "/tmp/a.toml"]);
    assert!(text(&elsewhere.stderr).contains("started with --config"), "{elsewhere:?}");
}

#[test]
fn the_saved_file_of_a_server_started_with_flags_is_equivalent() {
    let dir = tempfile::tempdir().unwrap();
    let (file, disk) = (dir.path().join("new.toml"), dir.path().join("disk.img"));
    let backend = format!("--namespace=file:{}?size=1MiB", disk.display());
    let nqn = format!("--nqn={NQN}");
    let server = Server::start(&[
        "--listen=127.0.0.1:0",
        &nqn,
        "--namespace=mem:1MiB",
        &backend,
        "--policy=static",
        "--drain-timeout=5s",
        "--state=none",
        "--log-format=text",
        "--energy-shares=equal",
        "--sensor=modelled",
        "--page=127.0.0.1:0",
    ]);
    assert!(text(&server.admin(&["config", "save"]).stderr).contains("--to FILE"));
    server.request(&["host", "add", A, "--only"]);
    let saved = server.request(&["config", "save", "--to", file.to_str().unwrap()]);
    assert!(saved["notes"][0].as_str().is_some_and(|note| note.contains("--config")), "{saved}");
    assert!(text(&server.admin(&["config", "save", "--to", file.to_str().unwrap()]).stderr).contains("there already"));
    let (message, list) = (server.message().clone(), server.request(&["namespace", "list"]));
    let text_saved = fs::read_to_string(&file).unwrap();
    for line in ["[page]\nlisten = \"127.0.0.1:0\"", "[log]\nformat = \"text\"", "energy_shares = \"equal\""] {
        assert!(text_saved.contains(line), "no {line} in {text_saved}");
    }
    drop(server);
    let again = Server::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(again.message()["subsystems"][0]["nqn"], message["subsystems"][0]["nqn"]);
    assert_eq!(again.message()["subsystems"][0]["allowed_hosts"], json!([A]));
    assert_eq!(again.request(&["namespace", "list"]), list);
    assert_eq!(again.request(&["status"])["policy"]["name"], "static");
}

#[test]
fn a_budget_with_an_end_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    let text = configuration(dir.path()).replace("[server]\n", "[server]\nsensor = \"modelled\"\n");
    fs::write(&file, text).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let _ = server.admin(&["set", "budget", "300W", "for", "2h"]);
    let saved = server.request(&["config", "save"]);
    assert!(saved["notes"][0].as_str().is_some_and(|note| note.contains("stays set manually")), "{saved}");
    assert!(!fs::read_to_string(&file).unwrap().contains("300W"));
    assert_eq!(server.request(&["status"])["budget"]["origin"], "manual");
    let _ = server.admin(&["set", "budget", "400W"]);
    server.request(&["config", "save"]);
    assert!(fs::read_to_string(&file).unwrap().contains("budget = \"400W\""));
    assert_eq!(server.request(&["status"])["budget"]["origin"], "configuration");
}

/// The thread that answers the control socket.
fn control_thread(server: &Server) -> String {
    let pid = server.request(&["status"])["server"]["pid"].as_u64().unwrap();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let is_control = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "control");
    let found = tasks.map(|task| task.unwrap().path()).find(is_control).expect("there is one");
    found.file_name().unwrap().to_str().unwrap().to_owned()
}

/// `strace` on the thread of a server that saves; `None` where it may not attach.
struct Strace {
    child: Child,
    /// Kept open, so that it can continue to write.
    _stderr: BufReader<ChildStderr>,
}

impl Strace {
    fn attach(server: &Server, args: &[&str]) -> Option<Self> {
        let mut strace = Command::new("strace");
        strace.args(args).args(["-p", &control_thread(server)]).stderr(Stdio::piped());
        let mut child = strace.spawn().unwrap();
        let mut message = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        message.read_line(&mut line).unwrap();
        if line.contains("attached") {
            return Some(Self { child, _stderr: message });
        }
        let _ = child.wait();
        println!("skipped: strace may not attach here: {line}");
        None
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The system calls of a save in their order, each with its count so far; and the file afterwards.
fn calls_of_a_save(dir: &Path) -> Option<(Vec<(String, usize)>, String)> {
    let (mut server, file) = start(dir);
    server.request(&["host", "add", B]);
    let trace = dir.join("trace");
    let strace = Strace::attach(&server, &["-o", trace.to_str().unwrap()])?;
    server.request(&["config", "save"]);
    server.kill(); // strace then ends, with its output complete
    let mut strace = strace;
    let _ = strace.child.wait();
    let mut calls: Vec<(String, usize)> = Vec::new();
    for line in fs::read_to_string(trace).unwrap().lines() {
        let Some((name, _)) = line.split_once('(') else { continue };
        if name.starts_with(|first: char| first.is_ascii_lowercase()) && name != "restart_syscall" {
            let before = calls.iter().filter(|(known, _)| known == name).count();
            calls.push((name.to_owned(), before + 1));
        }
    }
    Some((calls, fs::read_to_string(file).unwrap()))
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn a_save_killed_at_any_system_call_leaves_the_old_or_new_file() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: needs strace, to kill the server at each system call");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let old = configuration(dir.path());
    let Some((calls, new)) = calls_of_a_save(dir.path()) else { return };
    assert_ne!(old, new);
    let renamed = calls.iter().position(|(name, _)| name.starts_with("rename")).expect("it renames");
    let owner = calls.iter().find(|(name, _)| name.contains("chown"));
    assert_eq!(owner, None, "the owner is right, and the filter of a service may refuse the call");
    assert!(calls[renamed + 1..].iter().any(|(name, _)| name == "fsync"), "the folder is synchronised: {calls:?}");
    let (mut left_old, mut left_new) = (0, 0);
    for (name, at) in &calls {
        let (server, file) = start(dir.path());
        server.request(&["host", "add", B]);
        let inject = format!("inject={name}:signal=KILL:when={at}");
        let Some(_strace) = Strace::attach(&server, &["-e", &inject, "-o", "/dev/null"]) else { return };
        let saved = server.admin(&["config", "save"]);
        let found = fs::read_to_string(&file).unwrap();
        assert!(found == old || found == new, "killed at {name} {at}: {found}");
        if saved.status.code() == Some(0) {
            assert_eq!(found, new, "saved, and not there");
            continue;
        }
        *(if found == old { &mut left_old } else { &mut left_new }) += 1;
    }
    println!("{} system calls: {left_old} kills left the old file, {left_new} the new one", calls.len());
    assert!(left_old >= renamed / 2 && left_new > 0, "{calls:?}");
}
