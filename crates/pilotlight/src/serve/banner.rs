//! Output of the program once it serves: a summary, and commands for a Linux host.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use pilotlight_nvmf_target::config::{ServerConfig, SubsystemConfig};
use pilotlight_storage::format_size;
use serde_json::{Value, json};

use crate::config::{Operation, SleepAfter, format_cores, format_duration};
use crate::policies::PolicyChoice;

/// Stands where an address is not known.
const UNKNOWN_ADDRESS: &str = "ADDRESS-OF-THIS-MACHINE";

/// The summary, as text or as one line of JSON.
pub(super) fn serving(config: &ServerConfig, operation: &Operation, listening: &Listening, as_json: bool) -> String {
    let entries = entries(config, listening, outward_address);
    if as_json {
        return format!("{}\n", json_of("serving", config, operation, listening, &entries));
    }
    format!("{}{}{}", summary(config, operation, listening), commands(config, &entries), ending(config))
}

/// That the configuration holds.
pub(super) fn checked(config: &ServerConfig, operation: &Operation, as_json: bool) -> String {
    let (plain, tls, concat) =
        (config.listeners.clone(), config.tls_listeners.clone(), config.concatenation_listeners.clone());
    let listening = Listening { plain, tls, concat };
    if as_json {
        return format!("{}\n", json_of("checked", config, operation, &listening, &[]));
    }
    format!("The configuration is good.\n{}", summary(config, operation, &listening))
}

/// Addresses that the server listens on.
#[derive(Clone, Debug, Default)]
pub(super) struct Listening {
    pub(super) plain: Vec<SocketAddr>,
    pub(super) tls: Vec<SocketAddr>,
    pub(super) concat: Vec<SocketAddr>,
}

impl Listening {
    /// All of them.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        [&self.plain[..], &self.tls, &self.concat].concat()
    }
}

/// An address under which hosts reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    address: String,
    port: u16,
    /// Of `nvme connect`.
    option: &'static str,
}

/// The option for an address for generated keys.
const CONCAT: &str = " --concat";

/// Addresses for hosts: the advertised one of each kind, or each listener.
fn entries(config: &ServerConfig, listening: &Listening, outward: impl Fn(bool) -> Option<IpAddr>) -> Vec<Entry> {
    let kinds = [
        (&listening.plain, &config.advertise, ""),
        (&listening.tls, &config.tls_advertise, " --tls"),
        (&listening.concat, &None, CONCAT),
    ];
    let mut entries = Vec::new();
    for (listeners, advertise, option) in kinds.into_iter().filter(|(listeners, ..)| !listeners.is_empty()) {
        if let Some((address, port)) = advertise {
            entries.push(Entry { address: address.clone(), port: *port, option });
            continue;
        }
        entries.extend(listeners.iter().map(|listener| {
            let known = if listener.ip().is_unspecified() { outward(listener.is_ipv4()) } else { Some(listener.ip()) };
            let address = known.map_or(UNKNOWN_ADDRESS.to_owned(), |ip| ip.to_string());
            Entry { address, port: listener.port(), option }
        }));
    }
    entries
}

/// This machine's address towards others, where it listens on all: the one that a packet to elsewhere would bear.
/// (The addresses are set aside for documentation, and connecting a datagram socket sends nothing.)
fn outward_address(v4: bool) -> Option<IpAddr> {
    let (any, elsewhere) = if v4 { ("0.0.0.0:0", "192.0.2.1:9") } else { ("[::]:0", "[2001:db8::1]:9") };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(elsewhere).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// A summary in a few lines.
fn summary(config: &ServerConfig, operation: &Operation, listening: &Listening) -> String {
    let mut out = format!("pilotlight {} on {}\n", env!("CARGO_PKG_VERSION"), places(listening));
    for subsystem in &config.subsystems {
        summarise(&mut out, subsystem);
    }
    let _ = writeln!(
        out,
        "  {}, I/O threads: {}, memory: {}",
        place_of_reactors(config, operation),
        config.io_threads,
        format_size(config.limits.max_memory)
    );
    let _ = writeln!(out, "  policy {}, {}", policy(&operation.policy), quiet(operation));
    if let Some(socket) = &operation.admin_socket {
        let _ = writeln!(out, "  control socket {}", socket.path.display());
    }
    if let Some(address) = operation.metrics {
        let _ = writeln!(out, "  metrics http://{address}/metrics");
    }
    if let Some(page) = &operation.page {
        let _ = writeln!(out, "  page {} (pilotlight page prints its token)", page.listen);
    }
    out
}

fn place_of_reactors(config: &ServerConfig, operation: &Operation) -> String {
    if operation.reactors.is_test_mode() {
        return format!("reactors: {} without cores of their own (test mode)", operation.reactors.len());
    }
    let main = if config.cores.len() > 1 { format!(" (main {})", config.main_core) } else { String::new() };
    format!("cores {}{main}", format_cores(&config.cores))
}

fn policy(choice: &PolicyChoice) -> String {
    let set: Vec<String> = choice.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if set.is_empty() { choice.name.clone() } else { format!("{} ({})", choice.name, set.join(", ")) }
}

fn quiet(operation: &Operation) -> String {
    SleepAfter::sentence(&operation.sleep_after.text())
}

fn summarise(out: &mut String, subsystem: &SubsystemConfig) {
    let hosts = match subsystem.allowed_hosts.len() {
        0 => "any host".to_owned(),
        1 => "one host".to_owned(),
        count => format!("{count} hosts"),
    };
    let _ = writeln!(out, "  {}  ({hosts})", subsystem.nqn);
    for namespace in &subsystem.namespaces {
        let (nsid, backend, size) = (namespace.nsid, &namespace.backend, namespace.block_size);
        let _ = writeln!(out, "    namespace {nsid}: {backend}, blocks of {size} bytes");
    }
}

/// The lines to paste.
fn commands(config: &ServerConfig, entries: &[Entry]) -> String {
    let mut out = "\nOn a Linux host:\n  modprobe nvme-tcp\n".to_owned();
    for entry in entries {
        if let Some(line) = discover_line(config, entry) {
            let _ = writeln!(out, "  {line}");
        }
        for subsystem in &config.subsystems {
            let _ = writeln!(out, "  {}", connect_line(entry, &subsystem.nqn));
        }
    }
    out
}

fn ending(config: &ServerConfig) -> String {
    format!(
        "\nCtrl-C stops; requests in flight and the flush have {} to finish.\n",
        format_duration(config.limits.drain_timeout)
    )
}

/// `None` where the discovery service needs another address: on one for generated keys it is for hosts that authenticate to it.
fn discover_line(config: &ServerConfig, entry: &Entry) -> Option<String> {
    let is_served = entry.option != CONCAT || config.authentication.for_discovery;
    is_served.then(|| format!("nvme discover -t tcp -a {} -s {}{}", entry.address, entry.port, entry.option))
}

fn connect_line(entry: &Entry, nqn: &str) -> String {
    format!("nvme connect -t tcp -a {} -s {} -n {nqn}{}", entry.address, entry.port, entry.option)
}

fn places(listening: &Listening) -> String {
    let tls = if listening.tls.is_empty() { String::new() } else { format!("with TLS on {}", list(&listening.tls)) };
    let concat = match &listening.concat[..] {
        [] => String::new(),
        concat => format!("with authentication, then TLS, on {}", list(concat)),
    };
    let parts = [list(&listening.plain), tls, concat];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The same for programs.
fn json_of(
    event: &str,
    config: &ServerConfig,
    operation: &Operation,
    listening: &Listening,
    entries: &[Entry],
) -> Value {
    let namespaces = |subsystem: &SubsystemConfig| {
        let namespaces = subsystem.namespaces.iter();
        let value = namespaces
            .map(|ns| json!({ "nsid": ns.nsid, "backend": ns.backend.to_string(), "block_size": ns.block_size }));
        value.collect::<Vec<_>>()
    };
    let subsystem = |subsystem: &SubsystemConfig| {
        let connect: Vec<_> = entries.iter().map(|entry| connect_line(entry, &subsystem.nqn)).collect();
        json!({
            "nqn": subsystem.nqn,
            "allowed_hosts": subsystem.allowed_hosts,
            "namespaces": namespaces(subsystem),
            "connect": connect,
        })
    };
    json!({
        "event": event,
        "listening": listening.plain,
        "listening_tls": listening.tls,
        "listening_concat": listening.concat,
        "discover": entries.iter().filter_map(|entry| discover_line(config, entry)).collect::<Vec<_>>(),
        "subsystems": config.subsystems.iter().map(subsystem).collect::<Vec<_>>(),
        "cores": config.cores,
        "reactors": operation.reactors.len(),
        "test_mode": operation.reactors.is_test_mode(),
        "main_core": config.main_core,
        "io_threads": config.io_threads,
        "max_memory": config.limits.max_memory,
        "policy": operation.policy.name,
        "policy_parameters": operation.policy.parameters,
        "sleep_after": operation.sleep_after.text(),
        "admin_socket": operation.admin_socket.as_ref().map(|socket| &socket.path),
        "metrics": operation.metrics,
        "page": operation.page.as_ref().map(|page| page.listen.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use pilotlight_nvmf_target::config::NamespaceConfig;

    use std::time::Duration;

    use super::*;
    use crate::config::{AdminSocket, Reactors};
    use crate::serve::reload;

    fn config() -> ServerConfig {
        let namespace = |nsid, backend: &str| NamespaceConfig::new(nsid, backend.parse().unwrap(), 4096);
        let subsystem = |nqn: &str, hosts: &[&str], namespaces| SubsystemConfig {
            allowed_hosts: hosts.iter().map(ToString::to_string).collect(),
            ..SubsystemConfig::new(nqn, namespaces)
        };
        ServerConfig {
            subsystems: vec![
                subsystem("nqn.2024-05.com.example:a", &[], vec![namespace(1, "mem:1GiB"), namespace(2, "null:1GiB")]),
                subsystem("nqn.2024-05.com.example:b", &["x", "y"], vec![]),
            ],
            cores: vec![0, 1, 3],
            main_core: 1,
            io_threads: 6,
            ..ServerConfig::default()
        }
    }

    fn operation() -> Operation {
        let parameters = vec![("window".to_owned(), "64".to_owned()), ("z".to_owned(), "2".to_owned())];
        Operation {
            reactors: Reactors::pinned(&[0, 1, 3], 1, &[]),
            sleep_after: SleepAfter::Time(Duration::from_millis(5)),
            policy: PolicyChoice { name: "sandman".to_owned(), parameters },
            admin_socket: Some(AdminSocket {
                path: "/run/pilotlight/pilotlight.sock".into(),
                is_explicit: false,
                read_group: None,
            }),
            ..reload::tests::operation("sandman")
        }
    }

    fn listening(addresses: &[&str]) -> Listening {
        let plain = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Listening { plain, tls: Vec::new(), concat: Vec::new() }
    }

    fn reached(config: &ServerConfig, addresses: &[&str], outward: Option<&str>) -> Vec<String> {
        let outward = outward.map(|ip| ip.parse().unwrap());
        let entries = entries(config, &listening(addresses), |_| outward);
        entries.iter().map(|entry| format!("{} {}", entry.address, entry.port)).collect()
    }

    #[test]
    fn text_output() {
        expect![[r#"
            pilotlight 0.1.0 on 127.0.0.1:4420, [::1]:4420
              nqn.2024-05.com.example:a  (any host)
                namespace 1: mem:1GiB, blocks of 4096 bytes
                namespace 2: null:1GiB, blocks of 4096 bytes
              nqn.2024-05.com.example:b  (2 hosts)
              cores 0-1,3 (main 1), I/O threads: 6, memory: 2GiB
              policy sandman (window=64, z=2), the server may sleep after 5ms without requests
              control socket /run/pilotlight/pilotlight.sock

            On a Linux host:
              modprobe nvme-tcp
              nvme discover -t tcp -a 127.0.0.1 -s 4420
              nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2024-05.com.example:a
              nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2024-05.com.example:b
              nvme discover -t tcp -a ::1 -s 4420
              nvme connect -t tcp -a ::1 -s 4420 -n nqn.2024-05.com.example:a
              nvme connect -t tcp -a ::1 -s 4420 -n nqn.2024-05.com.example:b

            Ctrl-C stops; requests in flight and the flush have 10s to finish.
        "#]]
        .assert_eq(&serving(&config(), &operation(), &listening(&["127.0.0.1:4420", "[::1]:4420"]), false));
    }

    #[test]
    fn text_output_in_test_mode() {
        let reactors = Reactors::for_tests(8);
        let policy = PolicyChoice { name: "static".to_owned(), parameters: Vec::new() };
        let operation =
            Operation { reactors, sleep_after: SleepAfter::Never, policy, admin_socket: None, ..operation() };
        expect![[r#"
            The configuration is good.
            pilotlight 0.1.0 on 127.0.0.1:4420
              reactors: 8 without cores of their own (test mode), I/O threads: 1, memory: 2GiB
              policy static, the server never sleeps
        "#]]
        .assert_eq(&checked(&ServerConfig::default(), &operation, false));
    }

    #[test]
    fn the_connect_address_is_reachable() {
        let mut config = config();
        assert_eq!(reached(&config, &["192.0.2.7:1"], Some("192.0.2.9")), ["192.0.2.7 1"]);
        assert_eq!(reached(&config, &["0.0.0.0:1", "127.0.0.1:2"], Some("192.0.2.9")), ["192.0.2.9 1", "127.0.0.1 2"]);
        assert_eq!(reached(&config, &["0.0.0.0:1"], None), ["ADDRESS-OF-THIS-MACHINE 1"]);
        config.advertise = Some(("nvme.example.com".to_owned(), 7));
        assert_eq!(reached(&config, &["0.0.0.0:1", "127.0.0.1:2"], None), ["nvme.example.com 7"]);
    }

    #[test]
    fn json_output_is_one_line() {
        let line = serving(&config(), &operation(), &listening(&["127.0.0.1:4420"]), true);
        assert_eq!(line.matches('\n').count(), 1);
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["subsystems"][1]["allowed_hosts"], json!(["x", "y"]));
        assert_eq!(message["policy_parameters"], json!([["window", "64"], ["z", "2"]]));
        assert_eq!(message["discover"], json!(["nvme discover -t tcp -a 127.0.0.1 -s 4420"]));
    }
}
