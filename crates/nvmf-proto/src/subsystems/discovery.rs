//! The discovery log: the subsystems of a host and their addresses (Base 5.16.1.23).

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pilotlight_nvme::fabrics::{DISCOVERY_NQN, nqn_field};
use pilotlight_nvme::le::{U16, U64};
use pilotlight_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use zerocopy::IntoBytes;

use crate::ids::PortId;
use crate::subsystems::config::Security;

/// A listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its identity.
    pub id: PortId,
    /// The address.
    pub address: SocketAddr,
    /// How connections are encrypted.
    pub security: Security,
    /// It is `[::]` without connections over IPv4.
    pub is_v6_only: bool,
}

const TRTYPE_TCP: u8 = 3;
/// A referral to another discovery service.
const SUBTYPE_REFERRAL: u8 = 1;
const SUBTYPE_NVM: u8 = 2;
/// "Not required" would be 2, but older versions of nvme-cli fail on it.
const TREQ_NOT_SPECIFIED: u8 = 0;
/// A secure channel is required.
const TREQ_REQUIRED: u8 = 1;
/// Security type of TSAS for TCP: TLS 1.3 (TCP 3.1).
const SECTYPE_TLS_1_3: u8 = 2;
const CNTLID_DYNAMIC: u16 = 0xffff;
/// Largest admin queue that Connect accepts, in entries.
pub const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// All records with their allowed hosts.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryLog {
    generation: u64,
    records: Vec<Record>,
    /// Addresses of the machine, listed for wildcards.
    machine: Vec<IpAddr>,
    /// Differences from the previous log, computed once for the use of all discovery controllers.
    removed: Vec<Record>,
    added: Vec<Record>,
    has_machine_changed: bool,
}

#[derive(Clone, Debug)]
struct Record {
    entry: DiscoveryEntry,
    /// The listener's address is a wildcard: there is an entry for each address of the machine.
    wildcard: Option<Wildcard>,
    allowed_hosts: Vec<String>,
}

/// The addresses of which a wildcard accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wildcard {
    V4,
    V6,
    /// `[::]` accepts connections over IPv4 too.
    Both,
}

impl Wildcard {
    fn from_endpoint(endpoint: &Endpoint) -> Option<Self> {
        let family = match endpoint.address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) if endpoint.is_v6_only => Self::V6,
            SocketAddr::V6(_) => Self::Both,
        };
        endpoint.address.ip().is_unspecified().then_some(family)
    }

    fn accepts(self, local: IpAddr) -> bool {
        match self {
            Self::V4 => local.is_ipv4(),
            Self::V6 => local.is_ipv6(),
            Self::Both => true,
        }
    }
}

impl DiscoveryLog {
    /// An empty log of a machine with these addresses.
    #[must_use]
    pub fn new(machine: &[IpAddr]) -> Self {
        Self { machine: machine.to_vec(), ..Self::default() }
    }

    /// Adds the subsystem `nqn` at `endpoint`, or at the advertised address and port.
    pub fn add(&mut self, nqn: &str, allowed_hosts: &[String], endpoint: Endpoint, advertise: Option<&(String, u16)>) {
        let address = endpoint.address;
        let (traddr, family, port) = match advertise {
            Some((host, port)) => (host.clone(), ip_of(host).unwrap_or(address.ip()), *port),
            None => (address.ip().to_string(), address.ip(), address.port()),
        };
        let mut entry =
            DiscoveryEntry { portid: U16::new(endpoint.id.0), ..entry(SUBTYPE_NVM, nqn, (&traddr, family, port)) };
        if endpoint.security != Security::Plain {
            entry.treq = TREQ_REQUIRED;
            entry.tsas[0] = SECTYPE_TLS_1_3;
        }
        let known = |record: &Record| {
            DiscoveryEntry { portid: record.entry.portid, ..entry.clone() }.as_bytes() == record.entry.as_bytes()
        };
        if self.records.iter().any(known) {
            return; // several listeners behind one advertised address
        }
        let wildcard = Wildcard::from_endpoint(&endpoint).filter(|_| advertise.is_none());
        self.records.push(Record { entry, wildcard, allowed_hosts: allowed_hosts.to_vec() });
    }

    /// Adds another discovery service (address or name, and port) for every host. The address family of a name is unknown;
    /// hosts that resolve names use that of the resolved address.
    pub fn add_referral(&mut self, (host, port): &(String, u16)) {
        let family = ip_of(host).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let entry = entry(SUBTYPE_REFERRAL, DISCOVERY_NQN, (host, family, *port));
        self.records.push(Record { entry, wildcard: None, allowed_hosts: Vec::new() });
    }

    /// This log as the successor of `before`: of the same generation if the records are equal, otherwise of the next.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        let (removed, added) = (only_in(&before.records, &self.records), only_in(&self.records, &before.records));
        let has_machine_changed =
            self.machine != before.machine && self.records.iter().any(|record| record.wildcard.is_some());
        let is_changed =
            has_machine_changed || !self.records.iter().map(Record::whole).eq(before.records.iter().map(Record::whole));
        let generation = before.generation + u64::from(is_changed);
        Self { generation, removed, added, has_machine_changed, ..self }
    }

    /// Whether the records of `hostnqn` differ from the previous log.
    #[must_use]
    pub fn has_changed_for(&self, hostnqn: &str) -> bool {
        let has_wildcard = || seen_by(hostnqn, &self.records).any(|record| record.wildcard.is_some());
        self.has_machine_changed && has_wildcard()
            || !seen_by(hostnqn, &self.removed)
                .map(Record::content)
                .eq(seen_by(hostnqn, &self.added).map(Record::content))
    }

    /// The log page of `hostnqn`, connected to the local address `local`. A wildcard has an entry for this address and, unless that is
    /// a loopback one, for each other address of the machine, of those that it accepts connections to.
    #[must_use]
    pub fn page(&self, hostnqn: &str, local: Option<IpAddr>) -> Vec<u8> {
        let local = local.map(|address| address.to_canonical());
        let is_remote = local.is_some_and(|address| !address.is_loopback());
        let machine = self.machine.iter().copied().filter(|address| is_remote && Some(*address) != local);
        let addresses: Vec<IpAddr> = local.into_iter().chain(machine).collect();
        let entries: Vec<DiscoveryEntry> =
            seen_by(hostnqn, &self.records).flat_map(|record| record.entries(&addresses)).collect();
        let header = DiscoveryHeader {
            genctr: U64::new(self.generation),
            numrec: U64::new(entries.len() as u64),
            ..DiscoveryHeader::default()
        };
        let mut page = header.as_bytes().to_vec();
        entries.iter().for_each(|entry| page.extend_from_slice(entry.as_bytes()));
        page
    }
}

fn seen_by<'a>(hostnqn: &'a str, records: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| crate::subsystems::config::allows(&record.allowed_hosts, hostnqn))
}

/// The records of one log that are not in the other.
fn only_in(one: &[Record], other: &[Record]) -> Vec<Record> {
    let known: HashSet<_> = other.iter().map(Record::whole).collect();
    one.iter().filter(|record| !known.contains(&record.whole())).cloned().collect()
}

/// An entry with this address, family and port.
fn entry(subtype: u8, nqn: &str, (traddr, family, port): (&str, IpAddr, u16)) -> DiscoveryEntry {
    DiscoveryEntry {
        trtype: TRTYPE_TCP,
        adrfam: adrfam(family),
        subtype,
        treq: TREQ_NOT_SPECIFIED,
        portid: U16::new(port),
        cntlid: U16::new(CNTLID_DYNAMIC),
        asqsz: U16::new(ADMIN_QUEUE_ENTRIES),
        trsvcid: padded(&port.to_string()),
        subnqn: nqn_field(nqn),
        traddr: padded(traddr),
        ..DiscoveryEntry::default()
    }
}

impl Record {
    /// The visible content.
    fn content(&self) -> (&[u8], Option<Wildcard>) {
        (self.entry.as_bytes(), self.wildcard)
    }

    fn whole(&self) -> (&[u8], Option<Wildcard>, &[String]) {
        (self.entry.as_bytes(), self.wildcard, &self.allowed_hosts)
    }

    /// Its entries where the server is reached at these addresses.
    fn entries(&self, addresses: &[IpAddr]) -> Vec<DiscoveryEntry> {
        let at = |&address: &IpAddr| DiscoveryEntry {
            traddr: padded(&address.to_string()),
            adrfam: adrfam(address),
            ..self.entry.clone()
        };
        match self.wildcard {
            Some(wildcard) if !addresses.is_empty() => {
                addresses.iter().filter(|address| wildcard.accepts(**address)).map(at).collect()
            }
            _ => vec![self.entry.clone()],
        }
    }
}

/// The IP address of an advertised host, if it has no name. An interface may follow it (`fe80::1%eth0`).
fn ip_of(host: &str) -> Option<IpAddr> {
    host.split('%').next()?.parse().ok()
}

fn adrfam(address: IpAddr) -> u8 {
    if address.is_ipv4() { 1 } else { 2 }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(address: &str) -> Endpoint {
        let address = address.parse().expect("an address");
        Endpoint { id: PortId(1), address, security: Security::Plain, is_v6_only: false }
    }

    fn log() -> DiscoveryLog {
        let mut log = DiscoveryLog::default();
        let address = plain("192.0.2.7:4420");
        log.add("nqn.2014-08.org.example:open", &[], address, None);
        log.add("nqn.2014-08.org.example:closed", &["nqn.2014-08.org.example:friend".into()], address, None);
        log
    }

    /// Literal offsets from the specification.
    #[test]
    fn offsets_of_a_subsystem_entry() {
        let page = log().page("nqn.2014-08.org.example:stranger", None);
        assert_eq!(page.len(), 2048);
        assert_eq!(page[8], 1, "one record");
        let record = &page[1024..];
        assert_eq!(record[..4], [3, 1, 2, 0]);
        assert_eq!(record[6..8], [0xff, 0xff]);
        assert_eq!(&record[32..37], b"4420\0");
        assert_eq!(&record[256..285], b"nqn.2014-08.org.example:open\0");
        assert_eq!(&record[512..522], b"192.0.2.7\0");
    }

    #[test]
    fn hosts_see_only_their_subsystems() {
        assert_eq!(log().page("nqn.2014-08.org.example:friend", None).len(), 3072);
    }

    #[test]
    fn a_wildcard_listener_reports_the_connected_address() {
        let mut log = DiscoveryLog::default();
        log.add("nqn.2014-08.org.example:a", &[], plain("[::]:4420"), None);
        let page = log.page("h", Some("::ffff:192.0.2.9".parse().expect("an address")));
        assert_eq!(page[1024 + 1], 1, "IPv4");
        assert_eq!(&page[1024 + 512..1024 + 522], b"192.0.2.9\0");
    }

    #[test]
    fn a_wildcard_lists_every_address_of_the_machine_to_hosts_that_are_not_on_it() {
        let machine: Vec<IpAddr> =
            ["192.0.2.9", "198.51.100.9", "2001:db8::9"].map(|ip| ip.parse().expect("an IP")).into();
        let mut log = DiscoveryLog::new(&machine);
        log.add("nqn.2014-08.org.example:a", &[], plain("[::]:4420"), None);
        log.add("nqn.2014-08.org.example:a", &[], plain("0.0.0.0:4421"), None);
        log.add("nqn.2014-08.org.example:a", &[], plain("203.0.113.1:4422"), None);
        let listed = |local: &str| -> Vec<String> {
            let page = log.page("h", Some(local.parse().expect("an IP")));
            let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches('\0').to_owned();
            page[1024..].chunks(1024).map(|entry| [&entry[512..768], &entry[32..64]].map(text).join(" ")).collect()
        };
        let third = "203.0.113.1 4422";
        let all =
            ["198.51.100.9 4420", "192.0.2.9 4420", "2001:db8::9 4420", "198.51.100.9 4421", "192.0.2.9 4421", third];
        assert_eq!(listed("::ffff:198.51.100.9"), all);
        assert_eq!(listed("127.0.0.1"), ["127.0.0.1 4420", "127.0.0.1 4421", third]);
        let behind_nat = listed("10.0.0.1");
        assert_eq!((behind_nat.len(), behind_nat[0].as_str()), (8, "10.0.0.1 4420"));
    }

    #[test]
    fn hosts_that_see_a_wildcard_are_told_of_another_address_of_the_machine() {
        let log = |machine: &[&str], listener| {
            let machine: Vec<IpAddr> = machine.iter().map(|ip| ip.parse().expect("an IP")).collect();
            let mut log = DiscoveryLog::new(&machine);
            log.add("nqn.2014-08.org.example:a", &["friend".into()], plain(listener), None);
            log
        };
        for (listener, is_told) in [("[::]:4420", true), ("192.0.2.9:4420", false)] {
            let after = log(&["192.0.2.9", "192.0.2.10"], listener).after(&log(&["192.0.2.9"], listener));
            assert_eq!(
                (after.generation, after.has_changed_for("friend")),
                (u64::from(is_told), is_told),
                "{listener}"
            );
            assert!(!after.has_changed_for("stranger"));
            assert!(!after.clone().after(&after).has_changed_for("friend"), "no change");
        }
    }

    /// Ports of the records of these listeners for a host that has connected to `local`.
    fn ports(listeners: &[(&str, bool)], advertise: Option<&(String, u16)>, local: &str) -> Vec<String> {
        let mut log = DiscoveryLog::default();
        for (address, is_v6_only) in listeners {
            let endpoint = Endpoint { is_v6_only: *is_v6_only, ..plain(address) };
            log.add("nqn.2014-08.org.example:a", &[], endpoint, advertise);
        }
        let page = log.page("h", Some(local.parse().expect("an address")));
        let port = |record: &[u8]| String::from_utf8_lossy(&record[32..36]).trim_matches('\0').to_owned();
        page[1024..].chunks(1024).map(port).collect()
    }

    #[test]
    fn a_wildcard_is_listed_only_for_addresses_that_it_accepts() {
        let both = [("[::]:4420", false), ("0.0.0.0:4421", false)];
        let one_port = [("[::]:4420", true), ("0.0.0.0:4420", false), ("192.0.2.7:4421", false)];
        let behind = ("storage.example".to_owned(), 4430);
        for (listeners, advertise, local, expected) in [
            (&both[..], None, "::1", &["4420"][..]),
            (&both, None, "192.0.2.7", &["4420", "4421"]),
            (&both, None, "::ffff:192.0.2.7", &["4420", "4421"]),
            (&both, Some(&behind), "::1", &["4430", "4430"]),
            (&one_port, None, "2001:db8::1", &["4420", "4421"]),
            (&one_port, None, "192.0.2.7", &["4420", "4421"]),
        ] {
            assert_eq!(ports(listeners, advertise, local), expected, "{listeners:?} {local}");
        }
    }

    #[test]
    fn the_advertised_address_replaces_the_real_one() {
        let mut log = log();
        let address = plain("10.0.0.1:4420");
        log.add("nqn.2014-08.org.example:c", &[], address, Some(&("storage.example".into(), 14420)));
        let page = log.page("h", None);
        let record = &page[2048..];
        assert_eq!(&record[512..528], b"storage.example\0");
        assert_eq!(&record[32..38], b"14420\0");
    }

    #[test]
    fn an_advertised_address_has_its_family_and_is_listed_once() {
        let mut log = DiscoveryLog::default();
        for listener in ["10.0.0.1:4420", "10.0.0.2:4420"] {
            let address = plain(listener);
            log.add("nqn.2014-08.org.example:a", &[], address, Some(&("fe80::1%eth0".into(), 4420)));
        }
        let page = log.page("h", None);
        assert_eq!(page.len(), 2048);
        assert_eq!((page[1024 + 1], &page[1536..1549]), (2, &b"fe80::1%eth0\0"[..]), "IPv6");
    }

    /// TREQ and the security type at offset 768 (TCP 3.1).
    #[test]
    fn an_entry_says_that_tls_is_required() {
        let mut log = log();
        log.add(
            "nqn.2014-08.org.example:open",
            &[],
            Endpoint { security: Security::Tls, ..plain("192.0.2.7:4421") },
            None,
        );
        let page = log.page("h", None);
        let [plain, tls] = [1024, 2048].map(|at| (page[at + 3], page[at + 768], &page[at + 32..at + 37]));
        assert_eq!((plain, tls), ((0, 0, &b"4420\0"[..]), (1, 2, &b"4421\0"[..])));
    }

    /// Literal offsets from the specification (Base 5.1.12.3.1).
    #[test]
    fn offsets_of_a_referral() {
        let mut log = DiscoveryLog::default();
        log.add_referral(&("10.0.0.2".into(), 8009));
        log.add_referral(&("2001:db8::2".into(), 4420));
        log.add_referral(&("discovery.example.com".into(), 8009));
        let page = log.page("", None);
        assert_eq!((page.len(), page[8]), (4096, 3));
        let record = &page[1024..2048];
        assert_eq!(record[..4], [3, 1, 1, 0], "TCP, IPv4, a referral, no requirement");
        assert_eq!(record[4..10], [0x49, 0x1f, 0xff, 0xff, 128, 0], "PORTID, CNTLID, ASQSZ");
        assert_eq!(record[10..12], [0, 0], "EFLAGS");
        assert_eq!(&record[32..37], b"8009\0");
        assert_eq!(&record[256..293], b"nqn.2014-08.org.nvmexpress.discovery\0");
        assert_eq!(&record[512..521], b"10.0.0.2\0");
        assert_eq!((page[2048 + 1], &page[2048 + 512..2048 + 524]), (2, &b"2001:db8::2\0"[..]));
        assert_eq!(&page[3072 + 512..3072 + 534], b"discovery.example.com\0");
    }
}
