//! Priorities and minimums of a running server: configured, set manually, displayed, and kept over a restart.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::{Server, text};

const NQN: &str = "nqn.2024-05.com.example:disks";
const HOST: &str = "nqn.2024-05.com.example:host";

/// A configuration in which the namespace has this priority.
fn configure(folder: &Path, priority: u8) -> String {
    let file = folder.join("server.toml");
    let [socket, state] = ["control.sock", "goals.json"].map(|name| folder.join(name).display().to_string());
    let text = format!(
        "server = {{ listen = \"127.0.0.1:0\" }}\nadmin = {{ socket = \"{socket}\", state = \"{state}\" }}\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\npriority = {priority}\n\
         [[class]]\npriority = 5\nmin_bytes_per_s = \"50MB/s\"\n"
    );
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn start(file: &str) -> Server {
    Server::start(&["--config", file])
}

fn namespace(priority: u8, manual: bool) -> Value {
    json!({ "nqn": NQN, "nsid": 1, "host": null, "priority": priority, "manual": manual })
}

fn host(priority: u8) -> Value {
    json!({ "nqn": null, "nsid": null, "host": HOST, "priority": priority, "manual": true })
}

#[test]
fn manual_priorities_survive_kill_9_until_the_configuration_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = configure(folder.path(), 3);
    let mut server = start(&file);
    let named = |server: &Server| server.request(&["status"])["priorities"]["named"].clone();
    assert_eq!(named(&server), json!([namespace(3, false)]));
    server.request(&["set", "priority", "7", "--namespace", "1"]);
    let answer = server.request(&["set", "priority", "5", "--host", HOST]);
    assert_eq!(answer["named"], json!([namespace(7, true), host(5)]));
    let answer = server.request(&["set", "minimum", "20MB/s", "--priority", "9"]);
    let minimum = |priority: u8, bytes_per_s: u64| json!({ "priority": priority, "bytes_per_s": bytes_per_s });
    assert_eq!(answer["minimums"], json!([minimum(5, 50_000_000), minimum(9, 20_000_000)]));
    assert_eq!(answer["unused"], true, "sandman has no use for them");
    server.kill();
    drop(server);
    let mut server = start(&file);
    let status = server.request(&["status"]);
    assert_eq!(status["priorities"], answer, "as before the kill");
    let printed = text(&server.admin(&["status"]).stdout);
    assert!(printed.contains(&format!("namespace 1 of {NQN} 7 (manual), host {HOST} 5")), "{printed}");
    assert!(printed.contains("priority 5 50MB/s, priority 9 20MB/s"), "{printed}");
    assert_eq!(server.request(&["set", "priority", "off", "--host", HOST])["named"], json!([namespace(7, true)]));
    let answer = server.request(&["set", "priority", "default", "--namespace", "1"]);
    assert_eq!(answer["named"], json!([namespace(3, false)]));
    server.request(&["set", "priority", "6", "--namespace", "1"]);
    configure(folder.path(), 4);
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(named(&server), json!([namespace(4, false)]));
    server.kill();
    drop(server);
    configure(folder.path(), 3);
    let mut server = start(&file);
    assert_eq!(named(&server), json!([namespace(3, false)]), "what was dropped does not come back");
    server.kill();
}

#[test]
fn the_priority_of_a_removed_namespace_can_be_unset() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&configure(folder.path(), 3));
    server.request(&["set", "priority", "7", "--namespace", "1"]);
    server.request(&["namespace", "remove", "1"]);
    assert_eq!(server.request(&["status"])["priorities"]["named"], json!([namespace(7, true)]));
    assert_eq!(server.request(&["set", "priority", "off", "--namespace", "1"])["named"], json!([]));
    assert_eq!(
        server.request(&["set", "priority", "default", "--namespace", "1"])["named"],
        json!([namespace(3, false)])
    );
}

#[test]
fn status_has_the_class_of_io_threads_and_invalid_priorities_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&configure(folder.path(), 3));
    let host = server.connect();
    server.status_until("the class", |status| status["io_threads"][0]["class"] == 3);
    let printed = text(&server.admin(&["status"]).stdout);
    assert!(printed.contains("connections  class"), "{printed}");
    drop(host);
    server.status_until("no connection", |status| status["io_threads"][0]["class"] == Value::Null);
    for (words, why) in [
        (&["priority", "256", "--namespace", "1"][..], "`256` is not a priority: write 0 (the lowest) to 255, or off"),
        (&["priority", "5", "--namespace", "2"], "has no namespace 2"),
        (&["priority", "5", "--host", "h"], "host: "),
        (&["minimum", "1kB/s", "--priority", "5"], "`1kB/s` is not a minimum"),
        (&["minimum", "1MB/s", "--priority", "300"], "300 is not a priority"),
    ] {
        let refused = server.admin(&[&["set"], words].concat());
        let message = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && message.contains(why), "{words:?}: {message}");
    }
}
