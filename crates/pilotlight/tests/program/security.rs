//! Protection of the server's process.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pilotlight_auth::tls::{ConfiguredPsk, PskHash};
use pilotlight_auth::{Config, Policy, Secret, SecretLen, SequenceNumbers};
use pilotlight_host::{ConnectOptions, Controller, HostError};
use pilotlight_nvme::fabrics::DISCOVERY_NQN;

use super::process::{Server, run, text, wait_for};

/// A field of a status (proc(5)).
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).unwrap_or_default()
}

/// Two fields of each thread of a server.
fn threads(server: &Server, [one, other]: [&str; 2]) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.map(|status| (field(&status, one), field(&status, other))).collect()
}

/// The seccomp mode of each thread of a server, and whether it has `no_new_privs`.
fn modes(server: &Server) -> Vec<(String, String)> {
    threads(server, ["Seccomp", "NoNewPrivs"])
}

#[test]
fn every_thread_of_a_server_has_the_seccomp_filter() {
    let filtered = ("2".to_owned(), "1".to_owned());
    let server = Server::start(&["--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--page=127.0.0.1:0"]);
    let threads = modes(&server);
    assert!(threads.len() > 4 && threads.iter().all(|mode| *mode == filtered), "{threads:?}");
    drop(server);
    let server = Server::start(&["--listen=127.0.0.1:0", "--seccomp=off"]);
    let inherited = fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2");
    let threads = modes(&server);
    assert!(inherited || threads.iter().all(|(mode, _)| mode == "0"), "{threads:?}");
}

#[test]
fn an_unknown_seccomp_action_is_refused() {
    let refused = run(&["serve", "--check", "--seccomp=on"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("expected kill, log or off"), "{}", text(&refused.stderr));
}

/// On one CPU they share it with the reactor.
#[test]
fn handshakes_and_authentication_keep_off_the_cpus_of_reactors() {
    let allowed = field(&fs::read_to_string("/proc/self/status").unwrap(), "Cpus_allowed_list");
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    if allowed == first {
        println!("SKIPPED handshakes and authentication off the CPUs of reactors: only CPU {first} is allowed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let secrets = dir.path().join("secrets");
    write_secret(&secrets, secret(1).to_text().as_str());
    let (file, cores) = (secrets.to_str().unwrap(), format!("--cores={first}"));
    let server = Server::start(&["--listen=127.0.0.1:0", "--tls-listen=127.0.0.1:0", &cores, "--secrets-file", file]);
    let contains_first = |cpus: &str| cpus.split([',', '-']).next() == Some(&first);
    for name in ["tls", "authentication"] {
        let all = || threads(&server, ["Name", "Cpus_allowed_list"]);
        wait_for(&format!("thread {name} off CPU {first}"), || {
            all().iter().any(|(thread, cpus)| thread == name && !contains_first(cpus))
        });
    }
}

const NQN: &str = "nqn.2024-05.com.example:disks";
const HOST: &str = "nqn.2024-05.com.example:host";

/// A secret of equal bytes.
fn secret(byte: u8) -> Secret {
    let mut fill = |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    Secret::generate(None, SecretLen::Bytes32, &mut fill).unwrap()
}

fn write_secret(path: &Path, text: &str) {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    writeln!(file, "{HOST} dhchap_key {text}").unwrap();
}

fn connect(server: &Server, host_secret: &Secret) -> Result<Controller, HostError> {
    let (hostnqn, subnqn, sequence) = (HOST.to_owned(), NQN.to_owned(), Arc::new(SequenceNumbers::new(1)));
    let host_secret = host_secret.clone();
    let config = Config { hostnqn, subnqn, host_secret, controller_secret: None, policy: Policy::default(), sequence };
    let options = ConnectOptions::new(server.address(), NQN);
    let authentication = Some(Arc::new(config));
    Controller::connect(ConnectOptions { hostnqn: HOST.to_owned(), authentication, timeout_ms: 60_000, ..options })
}

#[test]
fn secrets_are_replaced_by_sighup_and_a_refused_file_leaves_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (file, secrets) = (dir.path().join("server.toml"), dir.path().join("secrets"));
    write_secret(&secrets, secret(1).to_text().as_str());
    let socket = dir.path().join("control.sock");
    let configuration = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = {socket:?}\n[security]\nsecrets_file = \"secrets\"\n\
         dh_groups = [\"ffdhe2048\"]\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         namespace = [{{ nsid = 1, backend = \"mem:1MiB\" }}]\n"
    );
    fs::write(&file, configuration).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let mut first = connect(&server, &secret(1)).unwrap();
    assert!(matches!(connect(&server, &secret(2)), Err(HostError::Authentication(_))));
    write_secret(&secrets, "DHHC-1:00:AAAA:");
    server.signal("HUP");
    server.expect_log("the configuration is refused; the running one is unchanged");
    connect(&server, &secret(1)).unwrap();
    write_secret(&secrets, secret(2).to_text().as_str());
    server.signal("HUP");
    server.expect_log("changing the secrets of hosts is done");
    first.keep_alive().unwrap();
    connect(&server, &secret(2)).unwrap();
    assert!(matches!(connect(&server, &secret(1)), Err(HostError::Authentication(_))));
}

#[test]
fn load_authenticates_with_a_file_of_secrets_one_way_and_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let (secrets, wrong) = (dir.path().join("secrets"), dir.path().join("wrong"));
    write_secret(&secrets, secret(1).to_text().as_str());
    write_secret(&wrong, secret(3).to_text().as_str());
    let with_controller = |path: &Path, key: &Secret| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{HOST} dhchap_ctrl_key {}", key.to_text().as_str()).unwrap();
    };
    with_controller(&secrets, &secret(2));
    let (file, socket) = (dir.path().join("server.toml"), dir.path().join("control.sock"));
    let configuration = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = {socket:?}\n[security]\nsecrets_file = \"secrets\"\n\
         authenticate_discovery = true\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         namespace = [{{ nsid = 1, backend = \"mem:1MiB\" }}]\n"
    );
    fs::write(&file, configuration).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let load = |hostnqn: &str, file: &Path| {
        let (target, file) = (server.address().to_string(), file.to_str().unwrap());
        let host = ["--hostnqn", hostnqn, "--secrets-file", file];
        let output = run(&[&["load", "--yield", "--target", &target, "--number_ios", "10"], &host[..]].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(load(HOST, &secrets).0, Some(0), "both ways: {}", load(HOST, &secrets).1);
    let one_way = dir.path().join("one-way");
    write_secret(&one_way, secret(1).to_text().as_str());
    assert_eq!(load(HOST, &one_way).0, Some(0), "{}", load(HOST, &one_way).1);
    let (code, message) = load(HOST, &wrong);
    assert!(code == Some(1) && message.contains("authentication"), "{message}");
    let other_controller = dir.path().join("other-controller");
    write_secret(&other_controller, secret(1).to_text().as_str());
    with_controller(&other_controller, &secret(4));
    assert_eq!(load(HOST, &other_controller).0, Some(1), "the target has another secret than expected");
    let (code, message) = load("nqn.2024-05.com.example:other", &secrets);
    assert!(code == Some(2) && message.contains("no dhchap_key for nqn.2024-05.com.example:other"), "{message}");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, message) = load(HOST, &secrets);
    assert!(code == Some(2) && message.contains("chmod 600"), "{message}");
}

/// Under the seccomp filter, as every server of these tests.
#[test]
fn load_is_verified_through_tls_and_other_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let key = |byte: u8| {
        let mut fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok(())
        };
        ConfiguredPsk::generate(PskHash::Sha256, true, &mut fill).unwrap()
    };
    let [secrets, wrong] = [("secrets", 1), ("wrong", 2)].map(|(name, byte)| {
        let path = dir.path().join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        writeln!(file, "{HOST} tls_key {}", key(byte).to_text().as_str()).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let flags = ["--listen=127.0.0.1:0", "--tls-listen=127.0.0.1:0", "--nqn", NQN, "--namespace=mem:16MiB"];
    let server = Server::start(&[&flags[..], &["--secrets-file", &secrets]].concat());
    let load = |target: &str, more: &[&str]| {
        let fixed = ["load", "--yield", "--target", target, "--nqn", NQN, "--hostnqn", HOST, "--number_ios", "200"];
        let output = run(&[&fixed[..], &["--verify", "--rw=randrw"], more].concat());
        (output.status.code(), text(&output.stderr))
    };
    let tls = server.tls_address().to_string();
    let (code, message) = load(&tls, &["--tls", "--secrets-file", &secrets]);
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = load(&tls, &["--tls", "--secrets-file", &wrong]);
    assert!(code == Some(1) && message.contains("decrypt_error"), "{message}");
    server.expect_log("another key for its identity");
    assert_eq!(load(&tls, &[]).0, Some(1), "without TLS");
    let (code, message) = load(&server.address().to_string(), &[]);
    assert!(code == Some(1) && message.contains("Connect"), "a host with a key, without TLS: {message}");
}

/// Under the seccomp filter, too.
#[test]
fn load_is_verified_with_a_key_that_authentication_generates() {
    let dir = tempfile::tempdir().unwrap();
    let [secrets, wrong] = [("secrets", 1), ("wrong", 2)].map(|(name, byte)| {
        let path = dir.path().join(name);
        write_secret(&path, secret(byte).to_text().as_str());
        path.to_str().unwrap().to_owned()
    });
    let flags = ["--concat-listen=127.0.0.1:0", "--nqn", NQN, "--namespace=mem:16MiB", "--secrets-file", &secrets];
    let server = Server::start(&flags);
    let target = server.message()["listening_concat"][0].as_str().unwrap();
    let load = |more: &[&str]| {
        let fixed = ["load", "--yield", "--target", target, "--nqn", NQN, "--hostnqn", HOST, "--number_ios", "200"];
        let output = run(&[&fixed[..], &["--verify", "--rw=randrw"], more].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = load(&["--concat", "--secrets-file", &secrets]);
    assert_eq!(code, Some(0), "{message}");
    server.expect_log("TLS key generated");
    let (code, message) = load(&["--concat", "--secrets-file", &wrong]);
    assert!(code == Some(1) && message.contains("authentication"), "{message}");
    let (code, message) = load(&["--secrets-file", &secrets]);
    assert!(code == Some(1) && message.contains("concatenation"), "{message}");
}

/// NQNs that lead out of any folder; the reading of the configuration shows that opened files are seen.
#[test]
fn no_file_is_opened_by_a_name_that_a_host_gives() {
    const NAME: &str = "../../tmp/named-by-a-host";
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED no file is opened by a name that a host gives: needs strace");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, trace) = (dir.path().join("server.toml"), dir.path().join("trace"));
    let configuration = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = {:?}\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         namespace = [{{ nsid = 1, backend = \"mem:1MiB\" }}]\n",
        dir.path().join("control.sock")
    );
    fs::write(&file, configuration).unwrap();
    let mut server = Server::start(&["--config", file.to_str().unwrap()]);
    let pid = server.pid().to_string();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=%file", "-o", trace.to_str().unwrap(), "-p", &pid]).stderr(Stdio::piped());
    let mut strace = strace.spawn().unwrap();
    let mut messages = BufReader::new(strace.stderr.take().unwrap());
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    if !line.contains("attached") {
        let _ = strace.wait();
        println!("SKIPPED no file is opened by a name that a host gives: strace may not attach here: {line}");
        return;
    }
    for subnqn in [NQN, DISCOVERY_NQN, NAME] {
        for hostnqn in [NAME, "/tmp/named-by-a-host"] {
            let options = ConnectOptions::new(server.address(), subnqn);
            let connected = Controller::connect(ConnectOptions { hostnqn: hostnqn.to_owned(), ..options });
            if let Ok(mut controller) = connected {
                let _ = controller.keep_alive();
            }
        }
    }
    server.signal("HUP");
    server.expect_log("configuration read again");
    server.kill();
    strace.wait().unwrap();
    let trace = fs::read_to_string(trace).unwrap();
    assert!(trace.contains("server.toml"), "{trace}");
    assert!(!trace.contains("named-by-a-host"), "{trace}");
}
