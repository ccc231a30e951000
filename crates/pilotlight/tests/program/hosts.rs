//! Hosts at run time: access, connections, visible namespaces, and SIGHUP; and users with read access.

use std::fs;
use std::process::Command;

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::{Sqe, opcode::io as opcode};
use serde_json::{Value, json};

use crate::process::{Server, text};

const NQN: &str = "nqn.2024-05.com.example:disks";
const A: &str = "nqn.2024-05.com.example:a";
const B: &str = "nqn.2024-05.com.example:b";

/// A server with a configuration file of one subsystem, of which the rest is `rest`.
struct Configured {
    server: Server,
    dir: tempfile::TempDir,
}

impl Configured {
    fn start(rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let this = |text: &str| fs::write(dir.path().join("server.toml"), text).unwrap();
        this(&configuration(dir.path(), rest));
        let file = dir.path().join("server.toml");
        let server = Server::start(&["--config", file.to_str().unwrap()]);
        Self { server, dir }
    }

    /// Changes the file, and reloads it.
    fn reload(&self, rest: &str) {
        fs::write(self.dir.path().join("server.toml"), configuration(self.dir.path(), rest)).unwrap();
        self.server.signal("HUP");
        self.server.expect_log("configuration read again");
    }

    fn options(&self, hostnqn: &str) -> ConnectOptions {
        let options = ConnectOptions::new(self.server.address(), NQN);
        ConnectOptions {
            hostnqn: hostnqn.into(),
            hostid: [hostnqn.len() as u8 ^ hostnqn.as_bytes()[hostnqn.len() - 1]; 16],
            ..options
        }
    }

    fn connect(&self, hostnqn: &str) -> (Controller, Connection) {
        let controller = Controller::connect(self.options(hostnqn)).unwrap();
        let spec = QueueSpec { qid: 1, depth: 8, max_io: 4096, buffers: Buffers::PerCommand };
        let queue = controller.open_queue(&spec).unwrap();
        (controller, queue)
    }

    fn may_connect(&self, hostnqn: &str) -> bool {
        match Controller::connect(self.options(hostnqn)) {
            Ok(_) => true,
            Err(HostError::Status { what: "Connect", status }) => {
                assert_eq!(status.to_field() >> 1 & 0x7ff, 0x184, "Connect Invalid Host");
                false
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn configuration(dir: &std::path::Path, rest: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\n[admin]\nsocket = \"{}/control.sock\"\nstate = \"none\"\n\n[[subsystem]]\nnqn = \"{NQN}\"\n{rest}\n",
        dir.display()
    )
}

const TWO: &str = "[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n\n[[subsystem.namespace]]\nnsid = 2\nbackend = \"mem:1MiB\"\n";

fn allowed(hosts: &[&str]) -> String {
    format!("allowed_hosts = {hosts:?}\n{TWO}")
}

fn is_closed(connection: &mut Connection) -> bool {
    loop {
        match connection.take_completion(1000) {
            Ok(_) => {}
            Err(error) => break matches!(error, HostError::Closed(_) | HostError::Io { .. }),
        }
    }
}

fn read(connection: &mut Connection, nsid: u32) -> bool {
    connection.execute("read", Sqe::block_io(opcode::READ, nsid, 0, 1), &[], &mut [0; 4096]).is_ok()
}

fn listed(answer: &Value) -> Vec<&str> {
    answer["subsystems"][0]["hosts"].as_array().unwrap().iter().map(|host| host["host"].as_str().unwrap()).collect()
}

#[test]
fn removing_a_host_disconnects_only_that_host() {
    let disks = Configured::start(&allowed(&[A]));
    let server = &disks.server;
    assert_eq!(listed(&server.request(&["host", "add", B])), [A, B]);
    let ((_a, mut of_a), (_b, mut of_b)) = (disks.connect(A), disks.connect(B));
    let connections = server.request(&["connections"])["connections"].clone();
    let of = connections.as_array().unwrap().iter().find(|one| one["host"] == A).unwrap();
    assert_eq!((&of["nqn"], &of["io_queues"]), (&json!(NQN), &json!(1)));
    assert!(of["address"].as_str().unwrap().starts_with("127.0.0.1:") && of["cntlid"].as_u64() > Some(0), "{of}");
    assert!(of["age_ns"].as_u64().is_some() && of["io_threads"] == json!([0]), "{of}");
    let removed = server.request(&["host", "remove", A]);
    assert_eq!(
        (listed(&removed), &removed["ended"][0]["host"], &removed["undrained"]),
        (vec![B], &json!(A), &json!(0))
    );
    assert!(is_closed(&mut of_a) && read(&mut of_b, 1));
    assert!(!disks.may_connect(A));
    let audit = server.expect_log("allowed hosts of");
    assert!(audit.contains("uid="), "{audit}");
    for (wrong, expected) in [
        (&["host", "remove", B][..], "--allow-any"),
        (&["host", "remove", A], "not on the list"),
        (&["host", "add", "x"], "not an NQN"),
        (&["host", "add", A, "--nqn", "y"], "no subsystem"),
    ] {
        let refused = server.admin(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(text(&refused.stderr).contains(expected), "{wrong:?}: {refused:?}");
    }
    let open = server.request(&["host", "remove", B, "--allow-any"]);
    assert_eq!(open["subsystems"][0]["any"], true);
    assert!(disks.may_connect(A));
    assert!(text(&server.admin(&["host", "add", A]).stderr).contains("--only"));
    assert_eq!(server.request(&["host", "add", A, "--only"])["ended"][0]["host"], B, "the list closes for all others");
    assert!(is_closed(&mut of_b) && disks.may_connect(A) && !disks.may_connect(B));
}

#[test]
fn manually_added_hosts_are_kept_until_the_file_changes() {
    let disks = Configured::start(&allowed(&[A]));
    disks.server.request(&["host", "add", B]);
    let (_b, mut of_b) = disks.connect(B);
    assert_eq!(disks.server.request(&["host", "list"])["subsystems"][0]["configured"], false);
    disks.reload(&format!("{}\n# another reason\n", allowed(&[A])));
    assert!(read(&mut of_b, 1), "it is kept");
    disks.reload(&allowed(&["nqn.2024-05.com.example:c"]));
    assert!(is_closed(&mut of_b), "the file has changed and no longer lists it");
    assert!(!disks.may_connect(A) && !disks.may_connect(B));
    disks.reload(TWO);
    assert!(disks.may_connect(A));
}

#[test]
fn a_disconnected_host_may_reconnect() {
    let disks = Configured::start(TWO);
    let server = &disks.server;
    let (_a, mut of_a) = disks.connect(A);
    let ended = server.request(&["disconnect", A]);
    assert_eq!((&ended["ended"][0]["host"], &ended["undrained"]), (&json!(A), &json!(0)));
    assert!(is_closed(&mut of_a));
    assert!(server.expect_log("request over the control socket: disconnect a host").contains("uid="));
    assert_eq!(server.request(&["disconnect", A])["ended"], json!([]), "it is not connected");
    let (_a, mut of_a) = disks.connect(A);
    assert!(read(&mut of_a, 1));
    let refused = server.admin(&["disconnect", A, "--nqn", "nqn.2024-05.com.example:none"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let table = text(&server.admin(&["connections"]).stdout);
    assert!(table.contains(A) && table.contains("I/O queues"), "{table}");
}

#[test]
fn visibility_follows_the_file_commands_and_sighup() {
    let some = TWO.replace("nsid = 2", &format!("nsid = 2\nhosts = [\"{A}\"]"));
    let disks = Configured::start(&some);
    let server = &disks.server;
    let ((mut a, mut of_a), (mut b, mut of_b)) = (disks.connect(A), disks.connect(B));
    assert_eq!((a.active_namespaces().unwrap(), b.active_namespaces().unwrap()), (vec![1, 2], vec![1]));
    assert!(read(&mut of_a, 2) && !read(&mut of_b, 2));
    let visible = server.request(&["namespace", "show", "2", "--host", B]);
    assert_eq!(visible["namespaces"][0]["hosts"], json!([A, B]));
    assert!(read(&mut of_b, 2));
    server.request(&["namespace", "hide", "2", "--host", A]);
    assert!(!read(&mut of_a, 2) && read(&mut of_b, 2));
    let list = text(&server.admin(&["namespace", "list"]).stdout);
    assert!(list.contains("1 host") && list.contains("not as configured"), "{list}");
    let refused = server.admin(&["namespace", "hide", "2", "--host", B]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--all"), "{refused:?}");
    disks.reload(&format!("{some}\n# another reason\n"));
    assert!(!read(&mut of_a, 2), "the manual setting is kept");
    disks.reload(TWO);
    assert!(read(&mut of_a, 2) && read(&mut of_b, 2), "the file has changed");
    server.request(&["namespace", "show", "1", "--host", A, "--only"]);
    assert_eq!(b.active_namespaces().unwrap(), [2]);
    server.request(&["namespace", "show", "1", "--all"]);
    assert_eq!(b.active_namespaces().unwrap(), [1, 2]);
}

#[test]
fn connect_is_refused_without_a_free_controller_id() {
    let disks = Configured::start(&format!("controller_ids = \"7-8\"\n{TWO}"));
    let (a, b) = (disks.connect(A), disks.connect(B));
    assert_eq!((a.0.cntlid(), b.0.cntlid()), (7, 8));
    match Controller::connect(disks.options("nqn.2024-05.com.example:c")) {
        Err(HostError::Status { what: "Connect", status }) => {
            assert_eq!(status.to_field() >> 1 & 0x7ff, 0x181, "Connect Controller Busy");
        }
        other => panic!("{:?}", other.map(|_| "connected")),
    }
    assert!(disks.server.expect_log("Connect refused").contains("controller_ids"));
    drop(a);
    disks.server.status_until("one is free", |status| status["io"]["associations"] == 1);
    assert_eq!(disks.connect("nqn.2024-05.com.example:c").0.cntlid(), 7);
}

/// Sends a request over the socket as another user with these groups; returns the response's line.
fn request_as(socket: &str, gid: u32, groups: &str, line: &str) -> Value {
    // a refused host may find the connection closed before it has sent Connect
    let script = "import contextlib,socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                  with contextlib.suppress(BrokenPipeError): s.sendall(sys.argv[2].encode()+b'\\n')\n\
                  print(s.makefile().readline(), end='')";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", &gid.to_string()]);
    if groups.is_empty() {
        command.arg("--clear-groups")
    } else {
        command.args(["--groups", groups])
    };
    let output = command.args(["/usr/bin/python3", "-c", script, socket, line]).current_dir("/").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!({ "failed": text(&output.stderr) }))
}

#[test]
fn members_of_the_read_group_cannot_make_changes() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has("setpriv") || !has("/usr/bin/python3") {
        println!("skipped: needs root, setpriv and /usr/bin/python3, to send requests as another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = dir.path().join("made/control.sock");
    let path = socket.to_str().unwrap();
    // a group of every Debian system, and its ID
    let groups = fs::read_to_string("/etc/group").unwrap();
    let gid = groups.lines().find_map(|line| line.strip_prefix("users:x:")?.split(':').next()?.parse::<u32>().ok());
    let gid = gid.expect("there is a group `users`");
    let server = Server::start(&[
        "--listen=127.0.0.1:0",
        "--namespace=mem:1MiB",
        "--admin-socket",
        path,
        "--admin-read-group=users",
    ]);
    let meta = |path: &std::path::Path| fs::metadata(path).map(|meta| (meta.mode() & 0o7777, meta.gid())).unwrap();
    assert_eq!((meta(&socket), meta(socket.parent().unwrap())), ((0o660, gid), (0o750, gid)));
    let status = r#"{"version":1,"command":"status"}"#;
    let change = r#"{"version":1,"command":"set-policy","policy":"static"}"#;
    let member = gid.to_string();
    for (gid, groups) in [(gid, ""), (65_534, member.as_str())] {
        let answer = request_as(path, gid, groups, status);
        assert_eq!(answer["ok"]["format"], 1, "{gid} {groups}: {answer}");
        for read in ["connections", "host-list", "namespace-list"] {
            let answer = request_as(path, gid, groups, &json!({ "version": 1, "command": read }).to_string());
            assert!(answer["ok"].is_object(), "{read}: {answer}");
        }
        let refused = request_as(path, gid, groups, change);
        assert!(refused["error"]["message"].as_str().is_some_and(|what| what.contains("may read")), "{refused}");
        assert!(refused["error"]["help"][0].as_str().is_some_and(|help| help.contains("root")), "{refused}");
    }
    assert_eq!(server.request(&["status"])["policy"]["name"], "sandman", "nothing has been changed");
    assert!(request_as(path, 65_534, "", status)["failed"].is_string(), "others may not even connect");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = request_as(path, 65_534, "", status);
    assert!(refused["error"]["message"].as_str().is_some_and(|what| what.contains("the group users")), "{refused}");
    let unknown = crate::process::run(&["serve", "--admin-read-group=no-such-group", "--check"]);
    assert!(text(&unknown.stderr).contains("no group `no-such-group`"), "{unknown:?}");
}
