//! The discovery log: which subsystems a host may connect to, and where (Base 5.16.1.23).

use std::net::{IpAddr, SocketAddr};

use pilotlight_nvme::fabrics::nqn_field;
use pilotlight_nvme::le::{U16, U64};
use pilotlight_nvme::log::{DiscoveryEntry, DiscoveryHeader};
use zerocopy::IntoBytes;

use crate::config::SubsystemConfig;

const TRTYPE_TCP: u8 = 3;
const SUBTYPE_NVM: u8 = 2;
/// "Not required" would be 2; older nvme-cli fails on it, and nothing is said about security here either way.
const TREQ_NOT_SPECIFIED: u8 = 0;
const CNTLID_DYNAMIC: u16 = 0xffff;
/// Largest admin queue that Connect accepts, in entries.
pub(crate) const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// Every record, and who may see it.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryLog {
    generation: u64,
    records: Vec<Record>,
}

#[derive(Clone, Debug)]
struct Record {
    entry: DiscoveryEntry,
    /// The listener takes any address: the host is told the one that it has reached.
    wildcard: bool,
    allowed_hosts: Vec<String>,
}

impl DiscoveryLog {
    /// Adds `subsystem` as reached at `address`, or at the address and port that are advertised instead.
    pub fn add(&mut self, subsystem: &SubsystemConfig, address: SocketAddr, advertise: Option<&(String, u16)>) {
        let (traddr, family, port) = match advertise {
            Some((host, port)) => (host.clone(), host.parse().unwrap_or(address.ip()), *port),
            None => (address.ip().to_string(), address.ip(), address.port()),
        };
        let entry = DiscoveryEntry {
            trtype: TRTYPE_TCP,
            adrfam: adrfam(family),
            subtype: SUBTYPE_NVM,
            treq: TREQ_NOT_SPECIFIED,
            portid: U16::new(port),
            cntlid: U16::new(CNTLID_DYNAMIC),
            asqsz: U16::new(ADMIN_QUEUE_ENTRIES),
            trsvcid: padded(&port.to_string()),
            subnqn: nqn_field(&subsystem.nqn),
            traddr: padded(&traddr),
            ..DiscoveryEntry::default()
        };
        let known = |record: &Record| record.entry.as_bytes() == entry.as_bytes();
        if self.records.iter().any(known) {
            return; // several listeners behind one advertised address
        }
        let wildcard = advertise.is_none() && address.ip().is_unspecified();
        self.records.push(Record { entry, wildcard, allowed_hosts: subsystem.allowed_hosts.clone() });
        self.generation += 1;
    }

    /// The log page as `hostnqn` may see it, who has reached the server at `reached`.
    #[must_use]
    pub fn page(&self, hostnqn: &str, reached: Option<IpAddr>) -> Vec<u8> {
        let admits = |record: &&Record| crate::config::allows(&record.allowed_hosts, hostnqn);
        let records: Vec<&Record> = self.records.iter().filter(admits).collect();
        let header = DiscoveryHeader {
            genctr: U64::new(self.generation),
            numrec: U64::new(records.len() as u64),
            ..DiscoveryHeader::default()
        };
        let mut page = header.as_bytes().to_vec();
        for record in records {
            page.extend_from_slice(record.entry_for(reached).as_bytes());
        }
        page
    }
}

impl Record {
    fn entry_for(&self, reached: Option<IpAddr>) -> DiscoveryEntry {
        let mut entry = self.entry.clone();
        if let Some(address) = reached.filter(|_| self.wildcard) {
            let address = address.to_canonical();
            entry.traddr = padded(&address.to_string());
            entry.adrfam = adrfam(address);
        }
        entry
    }
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

    fn subsystem(nqn: &str, allowed: &[&str]) -> SubsystemConfig {
        let allowed_hosts = allowed.iter().map(ToString::to_string).collect();
        SubsystemConfig { nqn: nqn.into(), serial: None, allowed_hosts, controller_ids: None, namespaces: Vec::new() }
    }

    fn log() -> DiscoveryLog {
        let mut log = DiscoveryLog::default();
        let address = "192.0.2.7:4420".parse().expect("an address");
        log.add(&subsystem("nqn.2014-08.org.example:open", &[]), address, None);
        log.add(&subsystem("nqn.2014-08.org.example:closed", &["nqn.2014-08.org.example:friend"]), address, None);
        log
    }

    /// Offsets by hand, from the table of the specification.
    #[test]
    fn a_record_says_where_and_what() {
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
    fn a_host_sees_only_what_it_may_use() {
        assert_eq!(log().page("nqn.2014-08.org.example:friend", None).len(), 3072);
    }

    #[test]
    fn a_wildcard_listener_gives_the_address_that_the_host_has_reached() {
        let mut log = DiscoveryLog::default();
        log.add(&subsystem("nqn.2014-08.org.example:a", &[]), "[::]:4420".parse().expect("an address"), None);
        let page = log.page("h", Some("::ffff:192.0.2.9".parse().expect("an address")));
        assert_eq!(page[1024 + 1], 1, "IPv4");
        assert_eq!(&page[1024 + 512..1024 + 522], b"192.0.2.9\0");
    }

    #[test]
    fn the_generation_grows_and_the_advertised_address_replaces_the_real_one() {
        let mut log = log();
        let before = log.page("h", None)[0];
        let address = "10.0.0.1:4420".parse().expect("an address");
        log.add(&subsystem("nqn.2014-08.org.example:c", &[]), address, Some(&("storage.example".into(), 14420)));
        let page = log.page("h", None);
        assert!(page[0] > before);
        let record = &page[2048..];
        assert_eq!(&record[512..528], b"storage.example\0");
        assert_eq!(&record[32..38], b"14420\0");
    }

    #[test]
    fn an_advertised_address_has_its_own_family_and_is_listed_once() {
        let mut log = DiscoveryLog::default();
        for listener in ["10.0.0.1:4420", "10.0.0.2:4420"] {
            let address = listener.parse().expect("an address");
            log.add(&subsystem("nqn.2014-08.org.example:a", &[]), address, Some(&("2001:db8::1".into(), 4420)));
        }
        let page = log.page("h", None);
        assert_eq!(page.len(), 2048);
        assert_eq!(page[1024 + 1], 2, "IPv6");
    }
}
