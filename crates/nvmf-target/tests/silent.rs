//! Ten thousand connections that send nothing: their memory, their effect on another host, and their timeout. A separate test
//! binary, because it measures the memory of the process.

mod host_support;

mod isolation {
    pub(crate) mod victim;
}

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use isolation::victim::{print_comparison, target, victim};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of connections, and of file descriptors in each of the two processes.
const SILENT: u64 = 10_000;
const DESCRIPTORS: u64 = SILENT + 500;

/// Raises the limit on open files.
fn raise_descriptors() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= DESCRIPTORS) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum })
        .map_err(|error| format!("the limit on open files is {limit:?} and cannot be raised to {DESCRIPTORS}: {error}"))
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}

#[test]
fn ten_thousand_silent_connections() {
    if let Err(reason) = raise_descriptors() {
        println!("SKIPPED ten thousand silent connections: {reason}");
        return;
    }
    let icreq_timeout = Duration::from_secs(8);
    let target = target(icreq_timeout);
    let before = victim(&target);
    let connections = || target.server.stats().totals.connections;
    let resident = resident_bytes();
    // another process, because each end of a connection needs a descriptor
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "silent_peers", "--ignored", "--nocapture"])
        .env(SILENT_TO, target.addr.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let since = Instant::now();
    let connected = lines.find_map(|line| line.ok()?.strip_prefix("connected ")?.parse::<u64>().ok());
    let connecting = since.elapsed();
    assert_eq!(connected, Some(SILENT), "connections of the other process");
    wait(|| connections() >= SILENT, "all connections to be distributed");
    let each = (resident_bytes().saturating_sub(resident)) / SILENT;
    let during = victim(&target);
    let left = connections();
    print_comparison(
        "10,000 silent",
        &before,
        &during,
        &format!("connected in {connecting:?}, {each} bytes of the process each"),
    );
    assert!(left >= SILENT || since.elapsed() > icreq_timeout, "{left} remain before the timeout");
    assert!(each < 4096, "{each} bytes per silent connection");
    wait(|| connections() == 0, "the timeout of ICReq");
    assert!(since.elapsed() >= icreq_timeout);
    drop(child.stdin.take());
    child.wait().expect("it ends");
    target.stop();
}

fn wait(done: impl Fn() -> bool, what: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SILENT_TO: &str = "PILOTLIGHT_SILENT_TO";

/// The other process of [`ten_thousand_silent_connections`].
#[test]
#[ignore = "run by another test in a process of its own"]
fn silent_peers() {
    let Ok(address) = std::env::var(SILENT_TO) else { return };
    raise_descriptors().expect("as the other process could");
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let peers: Result<Vec<_>, _> = (0..SILENT).map(|_| std::net::TcpStream::connect(address)).collect();
    println!("\nconnected {}", peers.as_ref().map_or(0, Vec::len));
    let _ = std::io::stdin().read_line(&mut String::new()); // until the other process has finished
}
