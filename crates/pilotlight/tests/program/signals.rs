//! Signals: drain, immediate exit, reload.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pilotlight_host::{Buffers, ConnectOptions, Controller, Handshake, QueueSpec};
use pilotlight_nvme::command::{Sgl, Sqe, opcode};
use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData};
use pilotlight_peers::raw::{RawPeer, Reply};

use crate::process::{Server, run, text};

const NQN: &str = "nqn.2024-05.com.example:disks";
/// Any port, with a small namespace.
const SMALL: [&str; 6] = ["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB", "--nqn", NQN];
/// Bytes of a write that does not fit into its capsule, so that the server has to send an R2T.
const LARGE: u32 = 128 * 1024;

/// Leaves a write unfinished: the server has sent an R2T, and the peer sends no data.
fn leave_a_write_unfinished(server: &Server, host: &mut Controller) -> RawPeer {
    host.set_queue_count(1).unwrap();
    let mut peer = RawPeer::connect(server.address(), Duration::from_secs(10)).unwrap();
    peer.shake_hands(&Handshake::default()).unwrap();
    let command = ConnectCmd { recfmt: 0, qid: 1, sqsize: 7, cattr: 0, kato_ms: 0 };
    let who = ConnectOptions::new(server.address(), NQN);
    let data = ConnectData::new(who.hostid, host.cntlid(), NQN, &who.hostnqn);
    assert!(peer.connect_queue(&command, &data).unwrap().status().is_success());
    let mut write = Sqe::block_io(opcode::io::WRITE, 1, 0, LARGE / 4096);
    write.sgl = Sgl::transport(LARGE);
    let capsule = peer.capsule(write, &[]);
    peer.send(&capsule).unwrap();
    assert!(matches!(peer.read_pdu().unwrap(), Reply::Pdu(_)), "no R2T");
    peer
}

#[test]
fn sigterm_and_ctrl_c_drain_and_exit_with_code_0() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&SMALL);
        let mut host = server.connect();
        host.set_queue_count(1).unwrap();
        let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
        let mut queue = host.open_queue(&spec).unwrap();
        queue.execute("a write", Sqe::block_io(opcode::io::WRITE, 1, 3, 1), &[7; 4096], &mut []).unwrap();
        server.signal(signal);
        server.expect_log("everything is finished and flushed");
        assert_eq!(server.exit_code(), Some(0), "{signal}");
    }
}

#[test]
fn a_stop_beyond_the_drain_timeout_exits_with_code_3() {
    let mut server = Server::start(&[&SMALL[..], &["--drain-timeout", "100ms"]].concat());
    let mut host = server.connect();
    let _peer = leave_a_write_unfinished(&server, &mut host);
    server.signal("TERM");
    server.expect_log("stopping: requests in flight and the flush have 100ms to finish");
    assert_eq!(server.exit_code(), Some(3));
}

/// Neither a request nor a flush of this medium ever returns.
#[test]
fn a_hung_medium_is_logged_and_does_not_block_the_exit() {
    let backend = "delay:3600s-3600s:mem:16MiB";
    let words = ["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB", "--namespace", backend, "--nqn", NQN];
    let mut server = Server::start(&[&words[..], &["--drain-timeout", "1s"]].concat());
    let mut host = server.connect();
    host.set_queue_count(1).unwrap();
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = host.open_queue(&spec).unwrap();
    queue.submit(Sqe::block_io(opcode::io::WRITE, 2, 3, 1), &[7; 4096], 0).unwrap();
    queue.flush().unwrap();
    // Answered after the write has arrived.
    queue.execute("a read", Sqe::block_io(opcode::io::READ, 1, 0, 1), &[], &mut [0; 4096]).unwrap();
    server.signal("TERM");
    let line = server.expect_log("stopped with work unfinished after 1s");
    assert!(line.contains(&format!("namespace 2 of {NQN} did not")), "{line}");
    assert_eq!(server.exit_code(), Some(3));
}

#[test]
fn a_second_signal_exits_at_once() {
    for (first, second, code) in [("TERM", "TERM", 143), ("INT", "INT", 130), ("TERM", "INT", 130)] {
        let mut server = Server::start(&[&SMALL[..], &["--drain-timeout", "1h"]].concat());
        let mut host = server.connect();
        let _peer = leave_a_write_unfinished(&server, &mut host);
        server.signal(first);
        server.expect_log("stopping");
        server.signal(second);
        assert_eq!(server.exit_code(), Some(code), "{first}, {second}");
    }
}

/// A configuration file with these namespaces of one subsystem.
fn write_config(path: &Path, namespaces: &[(u32, &str)]) {
    let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = \"control.sock\"\n".to_owned();
    text += &format!("[[subsystem]]\nnqn = \"{NQN}\"\n");
    for (nsid, backend) in namespaces {
        text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\nbackend = \"{backend}\"\nblock_size = 4096\n");
    }
    fs::write(path, text).unwrap();
}

/// A server with a configuration file that has these namespaces; the file is deleted with the directory.
fn configured(namespaces: &[(u32, &str)]) -> (Server, PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    write_config(&path, namespaces);
    (Server::start(&["--config", path.to_str().unwrap()]), path, dir)
}

#[test]
fn sighup_adds_removes_and_resizes_namespaces() {
    let (mut server, path, _dir) = configured(&[(1, "mem:1MiB"), (2, "mem:1MiB")]);
    let mut host = server.connect();
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    write_config(&path, &[(1, "mem:2MiB"), (5, "null:1GiB")]);
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(host.active_namespaces().unwrap(), [1, 5]);
    assert_eq!(host.namespace(1).unwrap().bytes(), 2 << 20);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

/// The file stays open and locked: no request and no byte is lost.
#[test]
fn sighup_changes_the_nsid_of_a_file() {
    let (mut server, path, _dir) = configured(&[(1, "file:disk.img?size=1MiB"), (2, "file:other.img?size=1MiB")]);
    let mut host = server.connect();
    host.set_queue_count(1).unwrap();
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = host.open_queue(&spec).unwrap();
    let at = |opcode, nsid| Sqe::block_io(opcode, nsid, 3, 1);
    queue.execute("a write", at(opcode::io::WRITE, 1), &[7; 4096], &mut []).unwrap();
    for nsid in [4, 9, 1] {
        write_config(&path, &[(nsid, "file:disk.img"), (2, "file:other.img")]);
        server.signal("HUP");
        server.expect_log(&format!("to number {nsid} of {NQN} is done"));
        server.expect_log("configuration read again");
        let mut expected = [2, nsid];
        expected.sort_unstable();
        assert_eq!(host.active_namespaces().unwrap(), expected);
        let mut data = [0; 4096];
        queue.execute("a read", at(opcode::io::READ, nsid), &[], &mut data).unwrap();
        assert_eq!(data, [7; 4096]);
    }
    assert!(queue.execute("a read", at(opcode::io::READ, 4), &[], &mut [0; 4096]).is_err(), "4 does not exist");
    // IDs that are in use with other storage: nothing changes, and the reason is logged
    write_config(&path, &[(2, "file:disk.img"), (1, "file:other.img")]);
    server.signal("HUP");
    server.expect_log("namespace 1 of nqn.2024-05.com.example:disks stays");
    server.expect_log("namespace 2 of nqn.2024-05.com.example:disks stays");
    server.expect_log("configuration read again");
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    let mut data = [0; 4096];
    queue.execute("a read", at(opcode::io::READ, 1), &[], &mut data).unwrap();
    assert_eq!(data, [7; 4096]);
    drop(queue);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn sighup_shrinks_a_namespace_only_where_the_file_allows_it() {
    let (mut server, path, _dir) = configured(&[(1, "mem:2MiB")]);
    let mut host = server.connect();
    write_config(&path, &[(1, "mem:1MiB")]);
    server.signal("HUP");
    let refused = server.expect_log("keeps its 2MiB");
    assert!(refused.contains("WARN") && refused.contains("shrink = true"), "{refused}");
    server.expect_log("configuration read again");
    assert_eq!(host.namespace(1).unwrap().bytes(), 2 << 20);
    fs::write(&path, fs::read_to_string(&path).unwrap() + "shrink = true\n").unwrap();
    server.signal("HUP");
    let message = server.expect_log("shrinks from 2MiB to 1MiB");
    assert!(message.contains("WARN"), "{message}");
    server.expect_log("configuration read again");
    assert_eq!(host.namespace(1).unwrap().bytes(), 1 << 20);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn sighup_grows_a_namespace_with_its_file() {
    let (mut server, path, dir) = configured(&[(1, "file:disk.img?size=1MiB")]);
    let mut host = server.connect();
    assert_eq!(host.namespace(1).unwrap().bytes(), 1 << 20);
    fs::File::options().write(true).open(dir.path().join("disk.img")).unwrap().set_len(3 << 20).unwrap();
    write_config(&path, &[(1, "file:disk.img")]);
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(host.namespace(1).unwrap().bytes(), 3 << 20);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_file_in_use_can_be_checked_but_not_served_twice() {
    let (server, path, _dir) = configured(&[(1, "file:disk.img?size=1MiB")]);
    let config = path.to_str().unwrap();
    assert_eq!(run(&["serve", "--check", "--config", config]).status.code(), Some(0));
    let second = path.with_file_name("second.toml");
    fs::write(&second, fs::read_to_string(&path).unwrap().replace("control.sock", "second.sock")).unwrap();
    let second = run(&["serve", "--config", second.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another pilotlight"), "{second:?}");
    drop(server);
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let (server, path, _dir) = configured(&[(1, "mem:1MiB")]);
    let mut host = server.connect();
    write_config(&path, &[(1, "mem:1MiB"), (0, "mem:1MiB")]);
    server.signal("HUP");
    server.expect_log("0 is not a namespace identifier");
    server.expect_log("the configuration is refused; the running one is unchanged");
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    fs::remove_file(&path).unwrap();
    server.signal("HUP");
    server.expect_log("no such file");
    server.expect_log("the configuration is refused; the running one is unchanged");
    assert_eq!(host.active_namespaces().unwrap(), [1]);
}

/// Changes made over the control socket, after SIGHUP.
#[test]
fn changes_at_run_time_hold_at_sighup_until_the_file_changes() {
    let (server, path, _dir) = configured(&[(1, "mem:1MiB"), (2, "mem:1MiB")]);
    let mut host = server.connect();
    server.request(&["namespace", "add", "null:1GiB", "--nsid", "5"]);
    server.request(&["namespace", "remove", "2"]);
    server.request(&["set", "policy", "static"]);
    server.signal("HUP");
    server.expect_log("namespace 5 of nqn.2024-05.com.example:disks is kept: it was added manually");
    server.expect_log("policy static is kept: it was set manually");
    server.expect_log("configuration read again");
    assert_eq!(host.active_namespaces().unwrap(), [1, 5]);
    write_config(&path, &[(1, "mem:1MiB"), (2, "mem:2MiB")]);
    let text = fs::read_to_string(&path).unwrap() + "[policy]\nname = \"interrupt\"\n";
    fs::write(&path, text).unwrap();
    server.signal("HUP");
    server.expect_log("policy interrupt is active");
    server.expect_log("configuration read again");
    assert_eq!(host.active_namespaces().unwrap(), [1, 2, 5]);
    assert_eq!(server.request(&["status"])["policy"]["name"], "interrupt");
}
