//! A server that root starts and that runs as another user, and its helper process. All of it is skipped where this is not root.

use std::fs::{self, Permissions};
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType, recvmsg,
    send, socketpair,
};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Server, command, run, text};

const NOBODY: u32 = 65_534;
const NQN: &str = "nqn.2024-05.com.example:disks";

/// A folder of root that nobody else can search, with a configuration.
struct Place(TempDir);

impl Place {
    /// `None`, with the reason printed, where this is not root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can give privileges up");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(place.0.path(), Permissions::from_mode(0o700)).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file that only root can read.
    fn disk(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::File::create_new(&path).unwrap().set_len(8 << 20).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Writes the configuration with these namespaces; its path.
    fn configure(&self, security: &str, backends: &[&str]) -> String {
        let (file, socket) = (self.path("server.toml"), self.path("control.sock"));
        let namespaces = (1..).zip(backends).map(|(nsid, backend)| {
            format!("[[subsystem.namespace]]\nnsid = {nsid}\nbackend = \"{backend}\"\nblock_size = 4096\n")
        });
        let namespaces: String = namespaces.collect();
        let configuration = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = {socket:?}\n[security]\n{security}\n\
             [[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
        );
        fs::write(&file, configuration).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

fn field(status: &str, name: &str) -> String {
    let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks every thread of a server.
fn assert_without_privileges(server: &Server) {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let statuses: Vec<String> =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok()).collect();
    assert!(statuses.len() > 4, "{statuses:?}");
    let nobody = [NOBODY.to_string().as_str(); 4].join(" ");
    let none = "0000000000000000";
    for status in statuses {
        let fields = [("Uid:", &*nobody), ("Gid:", &nobody), ("Groups:", ""), ("CapInh:", none), ("CapPrm:", none)];
        for (name, wanted) in fields {
            assert_eq!(field(&status, name), wanted, "{name} of {status}");
        }
        for (name, wanted) in [("CapEff:", none), ("CapAmb:", none), ("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
            assert_eq!(field(&status, name), wanted, "{name} of {status}");
        }
    }
}

/// The helper of a server: its child process.
fn helper_of(server: &Server) -> u32 {
    let all = fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
    all.trim().parse().unwrap_or_else(|_| panic!("one child process, not {all:?}"))
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not seen");
        std::thread::yield_now();
    }
}

/// Whether a process has ended; one that its parent has not waited for has ended too.
fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || field(&status, "State:").starts_with('Z')
}

#[test]
fn a_server_serves_and_reloads_what_only_root_can_open() {
    let Some(place) = Place::new() else { return };
    let (first, second) = (place.disk("first"), place.disk("second"));
    let (first, second) = (format!("file:{}", first.display()), format!("checked:file:{}", second.display()));
    let new = format!("file:{}?size=4MiB", place.path("new").display());
    let user = "user = \"nobody\"\ngroup = \"65534\"";
    let file = place.configure(user, &[&first]);
    let mut server = Server::start(&["--config", &file]);
    assert_without_privileges(&server);
    let target = server.address().to_string();
    let load = |nsid: &str| {
        let fixed = ["load", "--yield", "--target", &target, "--nsid", nsid, "--rw", "randrw", "--verify"];
        let output = run(&[&fixed[..], &["--number_ios", "500", "--fsync", "100"]].concat());
        assert_eq!(output.status.code(), Some(0), "{nsid}: {}", text(&output.stderr));
    };
    load("1");
    place.configure(user, &[&first, &second, &new]);
    server.signal("HUP");
    server.expect_log("configuration read again");
    load("2");
    load("3");
    assert!(place.path("second.sums").exists() && fs::metadata(place.path("new")).unwrap().len() == 4 << 20);
    let refused = server.admin(&["namespace", "add", "file:/etc/shadow"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("only what the configuration file names"), "{}", text(&refused.stderr));
    server.request(&["namespace", "add", "mem:1MiB"]);
    assert_without_privileges(&server);
    let helper = helper_of(&server);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert!(has_ended(helper), "the server waits for it");
    assert!(!place.path("control.sock").exists());
}

/// Behind its seccomp filter root cannot become the user for a check.
#[test]
fn a_reload_that_adds_a_user_does_not_end_the_server() {
    let Some(place) = Place::new() else { return };
    let disk = format!("file:{}", place.disk("disk").display());
    let file = place.configure("", &[&disk]);
    let mut server = Server::start(&["--config", &file]);
    place.configure("user = \"nobody\"\ngroup = \"65534\"", &[&disk]);
    server.signal("HUP");
    server.expect_log("security");
    server.request(&["namespace", "list"]);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

/// A loop device on a file, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None`, with the reason printed, where there are none.
    fn on(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok();
        let device =
            output.filter(|output| output.status.success()).map(|output| text(&output.stdout).trim().to_owned());
        if device.is_none() {
            println!("SKIPPED: a block device, as losetup makes none here");
        }
        device.map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_of_root_is_served_exclusively() {
    let Some(place) = Place::new() else { return };
    let Some(device) = Loop::on(&place.disk("disk")) else { return };
    let file = place.configure("user = \"nobody\"", &["mem:1MiB"]);
    let server = Server::start(&["--config", &file]);
    place.configure("user = \"nobody\"", &["mem:1MiB", &format!("file:{}", device.0)]);
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(server.request(&["namespace", "list"])["namespaces"][1]["size_bytes"], json!(8 << 20));
    let other = fs::File::options().read(true).custom_flags(libc::O_EXCL).open(&device.0).map(drop);
    assert_eq!(other.unwrap_err().raw_os_error(), Some(libc::EBUSY));
}

#[test]
fn a_group_signal_does_not_end_the_helper_before_its_server() {
    let Some(place) = Place::new() else { return };
    let disk = format!("file:{}", place.disk("disk").display());
    let file = place.configure("user = \"nobody\"", &["mem:1MiB"]);
    let mut server = Server::start(&["--config", &file]);
    let helper = helper_of(&server);
    let pid = rustix::process::Pid::from_raw(helper as i32).unwrap();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    place.configure("user = \"nobody\"", &["mem:1MiB", &disk]);
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(server.request(&["namespace", "list"])["namespaces"].as_array().unwrap().len(), 2);
    server.kill();
    until("the helper ends with its server", || has_ended(helper));
}

#[test]
fn without_its_helper_a_server_goes_on_and_says_what_to_do() {
    let Some(place) = Place::new() else { return };
    let disk = format!("file:{}", place.disk("disk").display());
    let file = place.configure("user = \"nobody\"", &["mem:1MiB"]);
    let server = Server::start(&["--config", &file]);
    let pid = rustix::process::Pid::from_raw(helper_of(&server) as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the helper ends", || has_ended(pid.as_raw_pid() as u32));
    place.configure("user = \"nobody\"", &["mem:1MiB", &disk]);
    server.signal("HUP");
    server.expect_log("the helper process has ended: restart the server");
    server.connect();
}

/// A helper process whose server is this test.
struct Helper {
    socket: OwnedFd,
    child: Child,
}

impl Helper {
    fn start(config: &str) -> Self {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = command(&["serve", "--config", config, "--privileged-helper"]);
        let child = command.stdin(Stdio::from(theirs)).stderr(Stdio::null()).spawn().unwrap();
        drop(command); // and with it the other end
        let helper = Self { socket, child };
        assert_eq!(helper.receive().0[0], 5, "ready");
        helper
    }

    fn receive(&self) -> (Vec<u8>, Option<OwnedFd>) {
        let (mut bytes, mut space) = ([0; 16], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty());
        let received = received.unwrap().bytes;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        (bytes[..received].to_vec(), file)
    }

    fn send(&self, packet: &[u8]) {
        send(&self.socket, packet, SendFlags::NOSIGNAL).unwrap();
    }

    /// The reply to a request to open a file for a purpose.
    fn open(&self, purpose: u8, path: &Path) -> (Vec<u8>, Option<OwnedFd>) {
        self.send(&[&[1, purpose], path.as_os_str().as_encoded_bytes()].concat());
        self.receive()
    }

    /// Whether the helper ends without a reply.
    fn ends(mut self) -> bool {
        let is_silent = self.receive().0.is_empty();
        is_silent && self.child.wait().unwrap().success()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const TEXT: u8 = 0;
const FILE: u8 = 2;
const NEW_FILE: u8 = 4;
const NOT_NAMED: &[u8] = &[1];
const UNTRUSTED: &[u8] = &[2];

#[test]
fn a_helper_opens_only_what_the_configuration_names() {
    let Some(place) = Place::new() else { return };
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o711)).unwrap();
    let (disk, unnamed) = (place.disk("disk"), place.disk("unnamed"));
    fs::File::options().write(true).open(&disk).unwrap().write_all(b"contents").unwrap();
    let open_to_others = place.path("others");
    fs::create_dir(&open_to_others).unwrap();
    chown(&open_to_others, Some(NOBODY), None).unwrap();
    let moved = open_to_others.join("disk");
    let backends = [format!("file:{}", disk.display()), format!("file:{}?size=1MiB", moved.display())];
    let config = place.configure("user = \"nobody\"", &backends.each_ref().map(String::as_str));
    let helper = Helper::start(&config);
    let (reply, file) = helper.open(FILE, &disk);
    let mut contents = [0; 8];
    fs::File::from(file.unwrap()).read_exact(&mut contents).unwrap();
    assert_eq!((reply, &contents), (vec![0], b"contents"));
    // what a compromised server may try
    std::os::unix::fs::symlink("/etc/shadow", &moved).unwrap();
    let through_named = disk.join("../../etc/shadow");
    for (purpose, path, wanted) in [
        (TEXT, Path::new("/etc/shadow"), NOT_NAMED),
        (FILE, Path::new("/etc/shadow"), NOT_NAMED),
        (NEW_FILE, Path::new("/etc/cron.d/x"), NOT_NAMED),
        (FILE, &unnamed, NOT_NAMED),
        (FILE, &through_named, NOT_NAMED),
        (TEXT, &disk, NOT_NAMED),
        (FILE, Path::new(&config), NOT_NAMED),
        (FILE, &moved, UNTRUSTED),
        (NEW_FILE, &moved, UNTRUSTED),
    ] {
        let (reply, file) = helper.open(purpose, path);
        assert_eq!((reply.as_slice(), file.is_none()), (wanted, true), "{purpose} {}", path.display());
    }
    // the knobs and threads of others
    helper.send(&[2, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(helper.receive().0, [4]);
    helper.send(&[3, 1, 0, 0, 0]);
    assert_eq!(helper.receive().0, [4]);
    helper.send(&[9, 9]);
    assert!(helper.ends(), "a malformed request");
}

#[test]
fn a_configuration_that_others_can_change_is_refused() {
    let Some(place) = Place::new() else { return };
    let file = place.configure("user = \"nobody\"", &["mem:1MiB"]);
    let refused = |why: &str| {
        let output = run(&["serve", "--config", &file]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    };
    chown(&file, Some(NOBODY), None).unwrap();
    refused("chown root");
    chown(&file, Some(0), None).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    refused("chmod go-w");
}

#[test]
fn what_cannot_be_combined_says_what_to_do() {
    let Some(place) = Place::new() else { return };
    let refused = |args: &[&str], uid: u32| {
        let socket = place.path("control.sock");
        let mut command = command(&[&["serve", "--admin-socket", socket.to_str().unwrap()], args].concat());
        let output = command.uid(uid).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first.trim().parse::<u16>().unwrap() > 1 {
        let port = refused(&["--user=nobody", "--listen=127.0.0.1:1"], 0);
        assert!(port.contains(&format!("listen on {} or above", first.trim())), "{port}");
    } else {
        println!("SKIPPED: privileged ports, of which this machine has none");
    }
    let other = refused(&["--user=4000000", "--group=4000000", "--listen=127.0.0.1:0"], NOBODY);
    assert!(other.contains("only a server that root starts"), "{other}");
    let root = refused(&["--user=root", "--listen=127.0.0.1:0"], 0);
    assert!(root.contains("root keeps its privileges"), "{root}");
    let helper = refused(&["--privileged-helper"], 0);
    assert!(helper.contains("starts its own helper"), "{helper}");
}

#[test]
fn root_is_told_how_to_give_privileges_up() {
    let Some(_) = Place::new() else { return };
    let server = Server::start(&["--listen=127.0.0.1:0"]);
    let line = server.expect_log("the server runs as root");
    assert!(line.contains("WARN") && line.contains("`user` in [security]"), "{line}");
}

#[test]
fn root_reads_no_state_file_that_the_servers_user_chose() {
    let Some(place) = Place::new() else { return };
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o711)).unwrap();
    let (folder, private) = (place.path("state"), place.disk("private"));
    fs::write(&private, "\"root:private\"\n").unwrap();
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(NOBODY), None).unwrap();
    let state = folder.join("goals.json");
    let file = place.configure("user = \"nobody\"", &["mem:1MiB"]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[admin]\n", &format!("[admin]\nstate = {state:?}\n"))).unwrap();
    std::os::unix::fs::symlink(&private, &state).unwrap();
    let mut server = Server::start(&["--config", &file]);
    let line = server.expect_log("goals that were set before are not known");
    assert!(line.contains("Permission denied") && !line.contains("private\""), "{line}");
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    fs::remove_file(&state).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &state, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o644), 0)
        .unwrap();
    let server = Server::start(&["--config", &file]);
    server.expect_log("not a regular file");
}

#[test]
fn secrets_that_only_root_can_read_are_read_again() {
    let Some(place) = Place::new() else { return };
    let secrets = place.disk("secrets");
    fs::write(&secrets, "# none\n").unwrap();
    let security = "user = \"nobody\"\nsecrets_file = \"secrets\"";
    let file = place.configure(security, &["mem:1MiB"]);
    let server = Server::start(&["--config", &file]);
    fs::write(&secrets, "nqn.2024-05.com.example:host dhchap_key wrong\n").unwrap();
    server.signal("HUP");
    server.expect_log("the configuration is refused; the running one is unchanged");
    fs::write(&secrets, "# none again\n").unwrap();
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(server.request(&["namespace", "list"])["namespaces"][0]["backend"], json!("mem:1MiB"));
}
