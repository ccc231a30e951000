//! Announces the discovery service by multicast DNS (TP 8009): `_nvme-disc._tcp`, with the protocol and the discovery NQN in
//! the TXT record. Hosts such as nvme-stas find the server without a configured address.
//!
//! One instance for each port, with the addresses that the server listens on: for a wildcard address, those of the
//! interfaces, also when they change. Loopback is announced only where there is nothing else, and on the loopback interface only.
//!
//! The library's thread is started by one that stays off the CPUs of reactors, which it inherits.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mdns_sd::{DaemonEvent, Error, IfKind, Receiver, ServiceDaemon, ServiceInfo};
use pilotlight_nvme::fabrics::DISCOVERY_NQN;
use pilotlight_reactor::keep_off;
use tracing::{info, warn};

/// Service type and domain.
const SERVICE: &str = "_nvme-disc._tcp.local.";
/// Interval of checks for changed addresses of interfaces. Each check wakes a CPU.
const ADDRESSES_S: u32 = 60;
/// How long the end waits for each message of farewell.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes of the host's name that are used: a label has at most 63, and a port and a number may follow.
const MAX_NAME: usize = 32;

/// Announces the discovery service while it is enabled, and until it is withdrawn.
pub(super) struct Announcer {
    /// CPUs of reactors.
    cpus: Vec<u32>,
    announced: Mutex<Option<Announced>>,
}

/// An announcement under way.
struct Announced {
    /// Addresses that the server listened on.
    addresses: Vec<SocketAddr>,
    daemon: ServiceDaemon,
    instances: Vec<String>,
}

impl Announcer {
    /// For a server with these reactors. Announces nothing yet.
    pub(super) fn new(reactors: &[Option<u32>]) -> Self {
        let cpus = reactors.iter().flatten().copied().collect();
        Self { cpus, announced: Mutex::default() }
    }

    /// Starts or ends the announcement of a server that listens on these addresses. A failure is logged, and the server continues.
    pub(super) fn follow(&self, is_wanted: bool, addresses: &[SocketAddr]) {
        let mut announced = self.announced();
        match (is_wanted, announced.take()) {
            (true, Some(running)) if running.addresses == addresses => *announced = Some(running),
            (true, running) => {
                running.into_iter().for_each(Announced::withdraw);
                *announced = self.start(addresses);
            }
            (false, Some(running)) => {
                running.withdraw();
                info!("the announcement by multicast DNS has ended");
            }
            (false, None) => {}
        }
    }

    /// Ends the announcement with the server.
    pub(super) fn withdraw(&self) {
        self.announced().take().into_iter().for_each(Announced::withdraw);
    }

    fn start(&self, addresses: &[SocketAddr]) -> Option<Announced> {
        let start = || {
            keep_off(&self.cpus);
            announce(addresses, &instances(addresses, &host_name()))
        };
        // a thread of its own, as the affinity of this one is to stay
        match thread::scope(|scope| scope.spawn(start).join()) {
            Ok(Ok(announced)) => {
                info!("the discovery service is announced by multicast DNS: {}", announced.instances.join(", "));
                Some(announced)
            }
            Ok(Err(error)) => {
                warn!("the discovery service is not announced by multicast DNS: {error}");
                None
            }
            Err(_) => None, // a panic has been logged
        }
    }

    fn announced(&self) -> MutexGuard<'_, Option<Announced>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Announced {
    /// Withdraws the service, and ends the library's thread.
    fn withdraw(self) {
        for instance in &self.instances {
            wait(self.daemon.unregister(instance));
        }
        wait(self.daemon.shutdown());
    }
}

fn wait<T>(answer: Result<Receiver<T>, Error>) {
    if let Ok(answer) = answer {
        let _ = answer.recv_timeout(FAREWELL);
    }
}

/// An instance of the service: what is reached at one port.
#[derive(Debug, PartialEq, Eq)]
struct Instance {
    name: String,
    host: String,
    port: u16,
    /// None: those of the interfaces.
    addresses: Vec<IpAddr>,
    interfaces: Interfaces,
}

/// Where an instance is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interfaces {
    /// On all interfaces but loopback.
    All,
    /// IPv4 only.
    V4,
    /// On those of the instance's addresses.
    OfAddresses,
}

/// The instances of a server that listens on `addresses`, on a machine of this name.
fn instances(addresses: &[SocketAddr], machine: &str) -> Vec<Instance> {
    let is_reachable = |address: &&SocketAddr| !address.ip().is_loopback();
    let only_loopback = !addresses.iter().any(|address| is_reachable(&address));
    let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
    for address in addresses.iter().filter(|address| only_loopback || is_reachable(address)) {
        ports.entry(address.port()).or_default().push(address.ip());
    }
    let instance = |(port, addresses): (u16, Vec<IpAddr>)| {
        let all: Vec<&IpAddr> = addresses.iter().filter(|address| address.is_unspecified()).collect();
        let interfaces = match all.as_slice() {
            [] => Interfaces::OfAddresses,
            [one] if one.is_ipv4() => Interfaces::V4,
            _ => Interfaces::All,
        };
        Instance {
            name: format!("pilotlight {port} on {machine}"),
            host: format!("nvme-{port}-{machine}.local."), // where it is in use, a number is appended
            port,
            addresses: if all.is_empty() { addresses } else { Vec::new() },
            interfaces,
        }
    };
    ports.into_iter().map(instance).collect()
}

impl Instance {
    fn is_loopback(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_loopback)
    }

    fn service(&self) -> Result<ServiceInfo, Error> {
        let txt = [("p", "tcp"), ("NQN", DISCOVERY_NQN)];
        let service =
            ServiceInfo::new(SERVICE, &self.name, &self.host, self.addresses.as_slice(), self.port, &txt[..])?;
        let mut service = if self.addresses.is_empty() { service.enable_addr_auto() } else { service };
        service.set_interfaces(match self.interfaces {
            Interfaces::All => vec![IfKind::All],
            Interfaces::V4 => vec![IfKind::IPv4],
            Interfaces::OfAddresses => self.addresses.iter().copied().map(IfKind::Addr).collect(),
        });
        Ok(service)
    }
}

/// Starts the library's thread, and announces these instances.
fn announce(addresses: &[SocketAddr], instances: &[Instance]) -> Result<Announced, Error> {
    let daemon = ServiceDaemon::new()?;
    let mut announced = Announced { addresses: addresses.to_vec(), daemon, instances: Vec::new() };
    if let Err(error) = announced.register(instances) {
        announced.withdraw();
        return Err(error);
    }
    Ok(announced)
}

impl Announced {
    fn register(&mut self, instances: &[Instance]) -> Result<(), Error> {
        self.daemon.set_ip_check_interval(ADDRESSES_S)?;
        if !instances.iter().any(Instance::is_loopback) {
            self.daemon.disable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
        }
        let events = self.daemon.monitor()?;
        let tell = move || events.iter().for_each(|event| note(&event));
        thread::Builder::new()
            .name("mdns-events".to_owned())
            .spawn(tell)
            .map_err(|error| Error::Msg(format!("no thread is left: {error}")))?;
        for instance in instances {
            let service = instance.service()?;
            self.instances.push(service.get_fullname().to_owned());
            self.daemon.register(service)?;
        }
        Ok(())
    }
}

fn note(event: &DaemonEvent) {
    match event {
        DaemonEvent::Error(error) => warn!("multicast DNS: {error}"),
        DaemonEvent::NameChange(change) => {
            info!("multicast DNS: {} is in use, announced as {}", change.original, change.new_name);
        }
        _ => {}
    }
}

/// The machine's name as a label of DNS; `storage` where it has none that fits.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    label(&name)
}

fn label(name: &str) -> String {
    let first = name.trim().split('.').next().unwrap_or_default();
    let allowed = first.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(MAX_NAME);
    let label: String = allowed.collect();
    if label.is_empty() { "storage".to_owned() } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addresses: &[&str]) -> Vec<(u16, Vec<String>, Interfaces)> {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let instances = instances(&addresses, "m").into_iter();
        let text = |instance: &Instance| instance.addresses.iter().map(ToString::to_string).collect();
        instances.map(|instance| (instance.port, text(&instance), instance.interfaces)).collect()
    }

    #[test]
    fn loopback_is_announced_only_without_other_addresses() {
        let here = |text: &str| vec![text.to_owned()];
        assert_eq!(of(&["127.0.0.1:4420"]), [(4420, here("127.0.0.1"), Interfaces::OfAddresses)]);
        let expected = [(4420, here("192.0.2.7"), Interfaces::OfAddresses)];
        assert_eq!(of(&["127.0.0.1:4420", "192.0.2.7:4420", "[::1]:4420"]), expected);
        assert_eq!(of(&["0.0.0.0:4420"]), [(4420, vec![], Interfaces::V4)]);
        let expected = [
            (4420, vec![], Interfaces::All),
            (8009, vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()], Interfaces::OfAddresses),
        ];
        assert_eq!(of(&["[::]:4420", "192.0.2.7:8009", "[2001:db8::7]:8009"]), expected);
    }

    #[test]
    fn the_txt_record_has_the_protocol_and_the_discovery_nqn() {
        let address = "192.0.2.7:8009".parse().unwrap();
        let service = instances(&[address], "m")[0].service().unwrap();
        assert_eq!(service.get_fullname(), "pilotlight 8009 on m._nvme-disc._tcp.local.");
        assert_eq!((service.get_hostname(), service.get_port()), ("nvme-8009-m.local.", 8009));
        assert_eq!(service.get_property_val_str("p"), Some("tcp"));
        assert_eq!(service.get_property_val_str("NQN"), Some("nqn.2014-08.org.nvmexpress.discovery"));
    }

    #[test]
    fn names_of_machines_become_labels() {
        let long = "a".repeat(100);
        for (name, expected) in
            [("host\n", "host"), ("host.example.com", "host"), ("h_1-2", "h1-2"), ("", "storage"), ("(none)", "none")]
        {
            assert_eq!(label(name), expected);
        }
        assert_eq!(label(&long).len(), MAX_NAME);
    }
}
