//! Notifications to systemd, received by a test socket.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::process::Server;

/// Messages until one has this line.
fn until(socket: &UnixDatagram, line: &str) -> String {
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{line}: {error}"));
        let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if message.lines().any(|other| other == line) {
            return message;
        }
    }
}

#[test]
fn systemd_is_notified_of_start_watchdog_reload_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify.sock");
    follow(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
    let name = format!("pilotlight-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    follow(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

/// Runs a server with this `NOTIFY_SOCKET`.
fn follow(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let environment = [("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "100000")];
    let mut server = Server::start_in(&["--listen", "127.0.0.1:0", "--drain-timeout", "3s"], &environment);
    until(socket, "READY=1");
    until(socket, "WATCHDOG=1");
    server.signal("HUP");
    assert!(until(socket, "RELOADING=1").contains("MONOTONIC_USEC="));
    until(socket, "READY=1");
    server.signal("TERM");
    assert!(until(socket, "STOPPING=1").contains("EXTEND_TIMEOUT_USEC=9000000"), "three seconds and six more");
    assert_eq!(server.exit_code(), Some(0));
}
