//! Statistics of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilotlight_nvmf_proto::operation::Operation;
use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
use pilotlight_nvmf_proto::services::Totals;
use pilotlight_nvmf_proto::subsystems::failures::{FailureCount, Failures};
use pilotlight_reactor::{HistogramSnapshot, RuntimeStats, clock};
use pilotlight_storage::background::control::ClassStats;
use pilotlight_storage::background::upkeep::UpkeepStats;

use super::{CapStats, Capped, Entry, Namespace, Server, Shared};
use crate::hosts::usage::{Counts, Usage};
use crate::latency::coarse::CoarseSnapshot;
use crate::latency::{LatencyWindow, SocketLatencyStats};
use crate::stats::Counters;
use crate::thread::moves::Moves;

/// Time for which latencies are sampled after the status is read, in nanoseconds.
const WATCHED_NS: u64 = 30_000_000_000;

/// Statistics of an I/O thread; its placement and time are in [`ServerStats::runtime`].
#[derive(Clone, Debug, Default)]
pub struct TargetThreadStats {
    /// The I/O thread.
    pub id: u32,
    /// Its totals.
    pub totals: Totals,
    /// Latency of reads and writes in nanoseconds: from the poll that read the command to the end of the poll that wrote the
    /// last byte of its response.
    pub latency: HistogramSnapshot,
    /// Sampled latency from the arrival at the socket ([`crate::latency`]).
    pub from_socket: SocketLatencyStats,
    /// Wait for bandwidth caps in nanoseconds; not part of `latency`.
    pub cap_waits: HistogramSnapshot,
    /// Its moves between reactors.
    pub moves: Moves,
}

/// Statistics of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// Sums over all I/O threads.
    pub totals: Totals,
    /// Each I/O thread.
    pub threads: Vec<TargetThreadStats>,
    /// Statistics of the runtime.
    pub runtime: RuntimeStats,
    /// Number of associations.
    pub associations: usize,
    /// Controllers with power states, and their states as of the last admin command.
    pub power_states: Vec<(u16, u8)>,
    /// Namespaces with failed commands.
    pub failures: Vec<NamespaceFailures>,
    /// The last window of latency from the socket of each namespace in use by a policy.
    pub latencies: Vec<(Capped, LatencyWindow)>,
    /// Namespaces and hosts that are or were capped.
    pub caps: Vec<CapStats>,
    /// The highest class of each I/O thread; `None` without connections.
    pub classes: Vec<Option<u8>>,
    /// The classes of background work in use.
    pub background: Vec<ClassStats>,
    /// For each background I/O that overlapped a request: the time from the poll that took the request to the end of the I/O.
    pub background_overlaps: HistogramSnapshot,
    /// The background work of namespaces.
    pub upkeeps: Vec<UpkeepStats>,
    /// Refused connections and Connect commands by reason.
    pub refusals: Vec<(RefusalReason, u64)>,
    /// Requests and bytes by host and namespace, without zeroes.
    pub usages: Vec<NamespaceUsage>,
    /// Hosts with their own counters in `usages`.
    pub listed_hosts: Vec<String>,
    /// Latencies as in [`TargetThreadStats::latency`], by subsystem and operation, of subsystems with connections.
    pub by_subsystem: Vec<(String, Operation, CoarseSnapshot)>,
}

/// Requests of a host to a namespace since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// The subsystem.
    pub nqn: String,
    /// The namespace, possibly removed.
    pub nsid: u32,
    /// The host, if listed ([`crate::hosts::usage`]); `None`: all others.
    pub host: Option<String>,
    /// Commands and bytes.
    pub counts: Counts,
}

/// Failed commands of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFailures {
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// By status, since the namespace was added.
    pub counts: Vec<FailureCount>,
    /// By operation ([`Operation::ALL`]).
    pub by_operation: [u64; Operation::ALL.len()],
}

/// The name of this number in [`Usage`].
fn name_in(hosts: &[String], number: u32) -> Option<String> {
    hosts.get((number as usize).checked_sub(1)?).filter(|name| !name.is_empty()).cloned()
}

impl Shared {
    pub(crate) fn thread_stats(&self) -> Vec<TargetThreadStats> {
        let one = |(id, counters): (u32, &Arc<Counters>)| TargetThreadStats {
            id,
            totals: counters.totals(),
            latency: counters.latency.snapshot(),
            from_socket: counters.from_socket.snapshot(),
            cap_waits: counters.cap_waits.snapshot(),
            moves: counters.moves.snapshot(),
        };
        (0..).zip(&self.counters).map(one).collect()
    }

    /// Requests and bytes by host and namespace, summed over I/O threads.
    fn usages(&self) -> Vec<NamespaceUsage> {
        let mut sums = BTreeMap::<(usize, u32, u32), Counts>::new();
        for usage in self.counters.iter().flat_map(|counters| counters.usage.usages()) {
            *sums.entry((usage.subsystem, usage.nsid, usage.host)).or_default() += usage.counts;
        }
        let hosts = self.hosts.listed_hosts.names();
        let named = |((subsystem, nsid, host), counts): ((usize, u32, u32), Counts)| NamespaceUsage {
            nqn: self.name_of(subsystem),
            nsid,
            host: name_in(&hosts, host),
            counts,
        };
        sums.into_iter().map(named).collect()
    }

    /// Requests and bytes by host and namespace, of each I/O thread.
    fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        let usages: Vec<Vec<Usage>> = self.counters.iter().map(|counters| counters.usage.usages()).collect();
        let hosts = self.hosts.listed_hosts.names(); // read last, so that each number has a name
        let named = |usage: Usage| NamespaceUsage {
            nqn: self.name_of(usage.subsystem),
            nsid: usage.nsid,
            host: name_in(&hosts, usage.host),
            counts: usage.counts,
        };
        usages.into_iter().map(|of_thread| of_thread.into_iter().map(named).collect()).collect()
    }

    /// Latencies by subsystem and operation, summed over I/O threads.
    fn by_subsystem(&self) -> Vec<(String, Operation, CoarseSnapshot)> {
        let mut sums = BTreeMap::<(usize, usize), (Operation, CoarseSnapshot)>::new();
        for (subsystem, operation, coarse) in self.counters.iter().flat_map(|it| it.by_subsystem.snapshot()) {
            sums.entry((subsystem, operation as usize)).or_insert((operation, CoarseSnapshot::default())).1 += coarse;
        }
        sums.into_iter().map(|((subsystem, _), (operation, sum))| (self.name_of(subsystem), operation, sum)).collect()
    }

    fn name_of(&self, subsystem: usize) -> String {
        let state = self.state();
        state.directory.subsystem(subsystem).map_or(String::new(), |subsystem| subsystem.nqn().to_owned())
    }

    /// The failed commands of each namespace.
    pub(super) fn failures(&self) -> Vec<(String, u32, Failures)> {
        let state = self.state();
        let of_entry = |entry: &Entry| {
            let nqn = entry.subsystem.nqn().to_owned();
            let one = |(&nsid, ns): (&u32, &Namespace)| (nqn.clone(), nsid, ns.info.failures.clone());
            entry.namespaces.iter().map(one).collect::<Vec<_>>()
        };
        state.subsystems.iter().flat_map(of_entry).collect()
    }
}

impl Server {
    /// Samples latencies from the socket for a while, for the next [`Server::stats`].
    pub fn watch_latency(&self) {
        self.shared.latencies.watch_until(clock::now_ns() + WATCHED_NS);
    }

    /// Requests and bytes by host and namespace, of each I/O thread.
    #[must_use]
    pub fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        self.shared.usages_by_thread()
    }

    /// Statistics of the runtime; takes no lock of the server.
    #[must_use]
    pub fn runtime_stats(&self) -> RuntimeStats {
        self.runtime.stats()
    }

    /// Statistics of the server.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let threads = self.shared.thread_stats();
        ServerStats {
            totals: threads.iter().map(|thread| thread.totals).fold(Totals::default(), |a, b| a + b), // of the same moment
            threads,
            runtime: self.runtime.stats(),
            associations: self.shared.hosts.associations.len(),
            power_states: self.shared.hosts.associations.power_states(),
            failures: self.failures(),
            latencies: self.shared.namespace_latencies(),
            caps: self.cap_stats(),
            classes: self.notices.classes(),
            background: self.shared.background.stats(),
            background_overlaps: self.shared.background.overlaps(),
            upkeeps: self.shared.background.upkeeps().iter().filter_map(|upkeep| upkeep.stats()).collect(),
            refusals: self.shared.hosts.refusals.counts().to_vec(),
            usages: self.shared.usages(),
            listed_hosts: self.shared.hosts.listed_hosts.names().into_iter().filter(|name| !name.is_empty()).collect(),
            by_subsystem: self.shared.by_subsystem(),
        }
    }

    fn failures(&self) -> Vec<NamespaceFailures> {
        let counted = |(nqn, nsid, failures): (String, u32, Failures)| {
            let (counts, by_operation) = (failures.counts(), failures.by_operation());
            NamespaceFailures { nqn, nsid, counts, by_operation }
        };
        self.shared.failures().into_iter().map(counted).filter(|namespace| !namespace.counts.is_empty()).collect()
    }
}
