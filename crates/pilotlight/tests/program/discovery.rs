//! The discovery log while the program runs: changes at SIGHUP, and announcements by multicast DNS.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use pilotlight_host::{ConnectOptions, Controller, discover};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use pilotlight_nvme::feature::{DISCOVERY_CHANGED, async_event, fid};

use crate::process::{Server, text};

const A: &str = "nqn.2024-05.com.example:a";
const B: &str = "nqn.2024-05.com.example:b";
/// Timeout of an expected event.
const PATIENCE_MS: u64 = 60_000;

/// A configuration file with more in its server section, and these subsystems.
fn write(path: &Path, server: &str, rest: &str, subsystems: &[(&str, &str)]) {
    let mut text =
        format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n[admin]\nsocket = \"control.sock\"\n{rest}\n");
    for (nqn, keys) in subsystems {
        text += &format!("[[subsystem]]\nnqn = \"{nqn}\"\n{keys}\n");
        text += "[[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n";
    }
    fs::write(path, text).unwrap();
}

fn reload(server: &Server) {
    server.signal("HUP");
    server.expect_log("configuration read again");
}

/// The discovery log: subtype, NQN and address of each entry.
fn listed(server: &Server) -> Vec<(u8, String, String)> {
    let entries = discover(&ConnectOptions::new(server.address(), DISCOVERY_NQN)).unwrap();
    entries
        .into_iter()
        .map(|entry| (entry.subtype, entry.subnqn, format!("{}:{}", entry.traddr, entry.trsvcid)))
        .collect()
}

#[test]
fn sighup_changes_the_discovery_log_and_sends_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    write(&path, "", "", &[(A, "")]);
    let mut server = Server::start(&["--config", path.to_str().unwrap()]);
    let here = server.address().to_string();
    let entry = |subtype: u8, nqn: &str, address: &str| (subtype, nqn.to_owned(), address.to_owned());
    assert_eq!(listed(&server), [entry(2, A, &here)]);
    let mut watcher = Controller::connect(ConnectOptions::new(server.address(), DISCOVERY_NQN)).unwrap();
    watcher.set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, async_event::DISCOVERY_CHANGE).unwrap();
    let awaited = watcher.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).unwrap();
    reload(&server);
    watcher.property(0x08, false).unwrap(); // VS: its response follows all earlier events
    assert!(watcher.admin().take_completion(0).unwrap().is_none(), "nothing has changed");

    let referral = "[[discovery.referral]]\naddress = \"192.0.2.8\"";
    write(&path, "", referral, &[(A, ""), (B, "")]);
    reload(&server);
    let (event, _) = watcher.admin().take_completion(PATIENCE_MS).unwrap().expect("an event");
    assert_eq!((event.cid, event.result as u32), (awaited, DISCOVERY_CHANGED));
    let expected = [entry(2, A, &here), entry(2, B, &here), entry(1, DISCOVERY_NQN, "192.0.2.8:8009")];
    assert_eq!(listed(&server), expected);
    let mut host = Controller::connect(ConnectOptions::new(server.address(), B)).unwrap();
    assert_eq!(host.active_namespaces().unwrap(), [1]);

    write(&path, "advertise = \"storage.example.com:4420\"", "", &[(A, &format!("allowed_hosts = [\"{B}\"]"))]);
    reload(&server);
    assert!(host.identify(1, 0).is_err(), "its subsystem and connection are removed");
    assert_eq!(listed(&server), [], "this host may use nothing");
    assert!(Controller::connect(ConnectOptions::new(server.address(), A)).is_err());
    let friend = ConnectOptions { hostnqn: B.to_owned(), ..ConnectOptions::new(server.address(), A) };
    assert_eq!(discover(&friend).unwrap()[0].traddr, "storage.example.com");
    Controller::connect(friend).unwrap();
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

/// `nvme discover` without a port asks 8009. The subsystem is listed once, with the port of `listen`.
#[test]
fn the_discovery_service_has_another_port() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = std::net::IpAddr::from([127, 90, high, low]); // of this process alone
    let port = std::net::TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().port();
    write(&path, "", &format!("[discovery]\nport = {port}"), &[(A, "")]);
    let text = fs::read_to_string(&path).unwrap().replace("127.0.0.1:0", &format!("{ip}:0"));
    fs::write(&path, text).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let entries = discover(&ConnectOptions::new((ip, port).into(), DISCOVERY_NQN)).unwrap();
    let listed: Vec<_> = entries.iter().map(|entry| format!("{}:{}", entry.traddr, entry.trsvcid)).collect();
    assert_eq!(listed, [server.address().to_string()]);
}

/// Prints the services that python3-zeroconf finds at a port, until it appears or disappears.
const BROWSER: &str = "
import sys, time
from zeroconf import ServiceBrowser, ServiceListener, Zeroconf
port, wanted = int(sys.argv[1]), sys.argv[2]
KIND = '_nvme-disc._tcp.local.'
seen, gone = {}, []
class Listener(ServiceListener):
    def add_service(self, zc, kind, name):
        info = zc.get_service_info(kind, name, 5000)
        if info and info.port == port:
            txt = sorted((k.decode(), v.decode()) for k, v in info.properties.items())
            print(info.port, info.parsed_addresses(), txt, flush=True)
            seen[name] = info  # now the main thread prints
    def update_service(self, zc, kind, name): pass
    def remove_service(self, zc, kind, name):
        if name in seen: gone.append(name)
zc = Zeroconf(interfaces=['127.0.0.1'])
browser = ServiceBrowser(zc, KIND, Listener())
until = time.monotonic() + 60
while time.monotonic() < until and not (gone if wanted == 'gone' else seen):
    time.sleep(0.05)
print('gone' if gone else 'there' if seen else 'nothing', flush=True)
zc.close()
";

/// python3-zeroconf is a peer that shares no code with this program.
#[test]
fn the_discovery_service_is_announced_and_withdrawn() {
    let has_zeroconf = |python: &&str| {
        let there = Command::new(python).args(["-c", "import zeroconf"]).output();
        there.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_zeroconf) else {
        return eprintln!("SKIPPED: the_discovery_service_is_announced: needs python3-zeroconf");
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    write(&path, "", "", &[(A, "")]);
    let mut server = Server::start(&["--config", path.to_str().unwrap()]);
    let port = server.address().port().to_string();
    let browse = |wanted| {
        let mut command = Command::new(python);
        command.args(["-c", BROWSER, &port, wanted]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    write(&path, "", "[discovery]\nmdns = true", &[(A, "")]);
    server.signal("HUP");
    let started = server.expect_log("multicast DNS");
    assert!(started.contains("is announced"), "{started}");
    let found = browse("there").wait_with_output().unwrap();
    let expected = format!("{port} ['127.0.0.1'] [('NQN', '{DISCOVERY_NQN}'), ('p', 'tcp')]\nthere\n");
    assert_eq!(text(&found.stdout), expected);
    let mut watching = browse("gone");
    let mut lines = BufReader::new(watching.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with(&port), "{line}");
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "gone\n", "a goodbye record at the exit");
    watching.wait().unwrap();
}
