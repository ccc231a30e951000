//! Listening addresses and subsystems at run time: commands, `config save`, and SIGHUP.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use pilotlight_host::{ConnectOptions, Controller, discover};
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use serde_json::json;

use crate::process::{Server, text};

const A: &str = "nqn.2024-05.com.example:a";
const B: &str = "nqn.2024-05.com.example:b";
const HOST: &str = "nqn.2024-05.com.example:host";

/// Addresses with free ports on addresses of this process alone.
pub(crate) fn addresses<const N: usize>() -> [SocketAddr; N] {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    std::array::from_fn(|at| {
        let ip = IpAddr::from([127, 91 + at as u8, high, low]);
        TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
    })
}

fn write(path: &Path, listen: &[SocketAddr], keys: &str) {
    let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
    let socket = path.with_file_name("control.sock");
    let text = format!(
        "[server]\nlisten = {listen:?} # two rails\n[admin]\nsocket = \"{}\"\nstate = \"none\"\n[[subsystem]]\nnqn = \"{A}\"\n{keys}\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n",
        socket.display()
    );
    fs::write(path, text).unwrap();
}

/// What the discovery log lists there: NQN and address.
fn listed(at: SocketAddr) -> Vec<(String, String)> {
    let entries =
        discover(&ConnectOptions { hostnqn: HOST.to_owned(), ..ConnectOptions::new(at, DISCOVERY_NQN) }).unwrap();
    entries.into_iter().map(|entry| (entry.subnqn, format!("{}:{}", entry.traddr, entry.trsvcid))).collect()
}

fn connect(at: SocketAddr, nqn: &str) -> Option<Controller> {
    Controller::connect(ConnectOptions { hostnqn: HOST.to_owned(), ..ConnectOptions::new(at, nqn) }).ok()
}

#[test]
fn commands_change_addresses_and_subsystems_and_are_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let [first, second] = addresses();
    write(&path, &[first], "");
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let mut host = connect(first, A).unwrap();

    let added = server.request(&["listener", "add", &second.to_string()]);
    assert_eq!(added["configured"], false);
    assert_eq!(added["listeners"][1], json!({ "address": second.to_string(), "security": "none" }));
    server.request(&["subsystem", "add", B, "--host", HOST, "--listen", &second.to_string()]);
    let entry = |nqn: &str, at: SocketAddr| (nqn.to_owned(), at.to_string());
    assert_eq!(listed(first), [entry(A, first), entry(A, second), entry(B, second)]);
    assert!(connect(first, B).is_none() && connect(second, B).is_some());
    let offered = server.request(&["subsystem", "listen", A, &first.to_string()]);
    assert_eq!(offered["subsystems"][0]["listen"], json!([first.to_string()]));
    assert!(connect(second, A).is_none());
    host.identify(1, 0).unwrap();

    let saved = server.request(&["config", "save"]);
    let changes = ["listen in [server]", &format!("listen of {A}"), &format!("subsystem {B}")];
    assert!(changes.iter().all(|change| saved["changes"].as_array().unwrap().contains(&json!(change))), "{saved}");
    assert!(fs::read_to_string(&path).unwrap().contains("# two rails"));
    server.signal("HUP");
    server.expect_log("configuration read again");
    host.identify(1, 0).expect("SIGHUP changes nothing");
    assert_eq!(server.request(&["listener", "list"])["configured"], true);
    assert_eq!(listed(first), [entry(A, first), entry(B, second)]);

    let help = |args: &[&str]| text(&server.admin(args).stderr);
    let refused = help(&["listener", "remove", &second.to_string()]);
    assert!(refused.contains(&format!("pilotlight subsystem listen {B}")), "{refused}");
    server.request(&["subsystem", "remove", B]);
    let removed = server.request(&["listener", "remove", &second.to_string()]);
    assert_eq!(removed["listeners"].as_array().map(Vec::len), Some(1));
    let refused = help(&["listener", "remove", &first.to_string()]);
    assert!(refused.contains("the only address"), "{refused}");
    let holder = TcpListener::bind(second).unwrap();
    let refused = help(&["listener", "add", &second.to_string()]);
    assert!(refused.contains("in use") && refused.contains("address"), "{refused}");
    drop(holder);
    for (args, expected) in [
        (&["listener", "add", "127.0.0.1:0"][..], "no port"),
        (&["listener", "add", "localhost:4420"], "names are not looked up"),
        (&["listener", "add", "127.0.0.1:1", "--tls"], "no host has a TLS key"),
        (&["subsystem", "add", A, "--allow-any"], "already exists"),
        (&["subsystem", "add", "nqn.x", "--allow-any"], "nqn.x"),
        (&["subsystem", "listen", A, "127.0.0.1:1"], "does not listen on 127.0.0.1:1"),
        (&["subsystem", "remove", B], "there is no subsystem"),
    ] {
        let refused = help(args);
        assert!(refused.contains(expected), "{args:?}: {refused}");
    }
    host.identify(1, 0).unwrap();
}

#[test]
fn sighup_changes_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let [first, second, third] = addresses();
    write(&path, &[first, second], "");
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let (mut stays, mut ends) = (connect(first, A).unwrap(), connect(second, A).unwrap());
    write(&path, &[first, third], &format!("listen = [\"{first}\"]"));
    server.signal("HUP");
    server.expect_log("configuration read again");
    stays.identify(1, 0).unwrap();
    assert!(ends.identify(1, 0).is_err());
    assert_eq!(listed(third), [(A.to_owned(), first.to_string())]);
    assert!(connect(third, A).is_none(), "it is offered on the first alone");
    assert!(std::net::TcpStream::connect(second).is_err());
}

#[test]
fn paths_are_closed_and_opened_and_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let [first, second] = addresses();
    write(&path, &[first, second], "");
    let keys = format!("\n[[path]]\naddress = \"{second}\"\nstate = \"non-optimized\"\n");
    fs::write(&path, fs::read_to_string(&path).unwrap() + &keys).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let mut host = connect(second, A).unwrap();
    let mut state = || {
        let mut page = [0; 64];
        host.log_page(0x0c, 0, 0, &mut page).unwrap();
        page[16 + 16]
    };
    assert_eq!(state(), 2);
    let drained = server.request(&["path", "drain", &second.to_string()]);
    assert_eq!((&drained["busy"], &drained["configured"]), (&json!(0), &json!(false)));
    assert_eq!((state(), &drained["paths"][1]["state"]), (3, &json!("inaccessible")));
    server.signal("HUP");
    server.expect_log("the states of paths are unchanged: they were changed manually");
    assert_eq!(server.request(&["path", "restore", &second.to_string()])["configured"], true);
    assert_eq!(state(), 2);
    server.request(&["path", "set", &second.to_string(), "change", "--group", "1"]);
    assert_eq!(server.request(&["config", "save"])["changes"], json!(["[[path]]"]));
    assert_eq!((state(), server.request(&["path", "list"])["configured"].clone()), (15, json!(true)));
    for (args, expected) in [
        (["path", "drain", "127.0.0.1:1"].as_slice(), "does not listen"),
        (&["path", "set", &second.to_string(), "open"], "use one of optimized, non-optimized"),
        (&["path", "drain", &second.to_string(), "--group", "33"], "1 to 32"),
    ] {
        let refused = text(&server.admin(args).stderr);
        assert!(refused.contains(expected), "{args:?}: {refused}");
    }
}

/// An address that is removed and added has the states of the configuration, in the server and in the list; and restored ones count as configured.
#[test]
fn states_of_a_removed_address_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    let [first, second] = addresses();
    write(&path, &[first, second], "");
    let rule = |address| format!("\n[[path]]\naddress = \"{address}\"\nstate = \"non-optimized\"\n");
    fs::write(&path, fs::read_to_string(&path).unwrap() + &rule(first) + &rule(second)).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let state = |at| {
        let mut page = [0; 64];
        connect(at, A).unwrap().log_page(0x0c, 0, 0, &mut page).unwrap();
        page[16 + 16]
    };
    let listed = || {
        let list = server.request(&["path", "list"]);
        let states = list["paths"].as_array().unwrap().iter().map(|path| path["state"].as_str().unwrap().to_owned());
        (states.collect::<Vec<_>>(), list["configured"] == true)
    };
    let both = || (["non-optimized"; 2].map(str::to_owned).to_vec(), true);
    let of_second = second.to_string();
    server.request(&["path", "drain", &first.to_string()]);
    server.request(&["path", "restore", &first.to_string()]);
    assert_eq!(listed(), both());

    server.request(&["path", "drain", &of_second]);
    server.request(&["listener", "remove", &of_second]);
    assert_eq!(listed(), (vec!["non-optimized".to_owned()], false));
    server.signal("HUP");
    server.expect_log("configuration read again");
    assert_eq!(listed(), (vec!["non-optimized".to_owned()], false));
    server.request(&["listener", "add", &of_second]);
    assert_eq!((state(second), listed()), (2, both()));

    server.request(&["path", "drain", &of_second]);
    server.request(&["listener", "remove", &of_second]);
    server.request(&["config", "save"]);
    assert!(!fs::read_to_string(&path).unwrap().contains(&of_second));
    server.request(&["listener", "add", &of_second]);
    assert_eq!((state(first), state(second)), (2, 1));
    assert_eq!(listed().0, ["non-optimized", "optimized"]);
}
