//! What a server has counted so far, as numbers for those who ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilotlight_reactor::{HistogramSnapshot, RuntimeStats, clock};

use super::{CapStats, Capped, Entry, Namespace, Server, Shared};
use crate::background::control::ClassStats;
use crate::background::upkeep::UpkeepStats;
use crate::failures::{FailureCount, Failures};
use crate::latency::coarse::CoarseSnapshot;
use crate::latency::{LatencyWindow, SocketLatencyStats};
use crate::moves::Moves;
use crate::refusals::RefusalReason;
use crate::stats::{Counters, Totals};
use crate::usage::{Counts, Operation, Usage};

/// How long latencies are sampled after someone has read the status, in nanoseconds.
const WATCHED_NS: u64 = 30_000_000_000;

/// What an I/O thread has served so far; where it ran and for how long is in [`ServerStats::runtime`].
#[derive(Clone, Debug, Default)]
pub struct TargetThreadStats {
    /// The I/O thread.
    pub id: u32,
    /// What it has counted.
    pub totals: Totals,
    /// How long reads and writes stayed in the target, in nanoseconds: from the poll that read the command to the end of
    /// the one in which the socket took the last byte of its answer.
    pub latency: HistogramSnapshot,
    /// The same of some of them, from the time when their bytes were at the socket ([`crate::latency`]).
    pub from_socket: SocketLatencyStats,
    /// How long commands waited for a bandwidth cap, in nanoseconds; not part of `latency`.
    pub cap_waits: HistogramSnapshot,
    /// Its moves from reactor to reactor.
    pub moves: Moves,
}

/// What a server has done so far.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// Sums over all I/O threads.
    pub totals: Totals,
    /// Each I/O thread.
    pub threads: Vec<TargetThreadStats>,
    /// Reactors, I/O threads as reactors see them, and the policy's orders.
    pub runtime: RuntimeStats,
    /// Associations that exist.
    pub associations: usize,
    /// Controllers that show power states, with the one that each was in when its host last sent an admin command.
    pub power_states: Vec<(u16, u8)>,
    /// Namespaces on which commands have failed.
    pub failures: Vec<NamespaceFailures>,
    /// The last window of latency, from the socket on, of each namespace of which a policy wants them.
    pub latencies: Vec<(Capped, LatencyWindow)>,
    /// Namespaces and hosts that are capped, or were.
    pub caps: Vec<CapStats>,
    /// The highest class that each I/O thread carries; `None` if it serves nobody.
    pub classes: Vec<Option<u8>>,
    /// The classes of background work that any namespace has.
    pub background: Vec<ClassStats>,
    /// Of each background I/O during which a host's request came: the time from the poll that took the first one until it was over.
    pub background_overlaps: HistogramSnapshot,
    /// The background work of each namespace that has any.
    pub upkeeps: Vec<UpkeepStats>,
    /// Connections and Connect commands that were refused, by reason.
    pub refusals: Vec<(RefusalReason, u64)>,
    /// Requests and bytes by host and namespace, where there were any.
    pub usages: Vec<NamespaceUsage>,
    /// Hosts that are counted by themselves in `usages`.
    pub listed_hosts: Vec<String>,
    /// Latencies as in [`TargetThreadStats::latency`], by subsystem and operation, of subsystems that hosts have connected to.
    pub by_subsystem: Vec<(String, Operation, CoarseSnapshot)>,
}

/// What a host has asked of a namespace since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// The subsystem.
    pub nqn: String,
    /// The namespace; it may be gone.
    pub nsid: u32,
    /// The host, where it is listed ([`crate::usage`]); `None`: all others.
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
    /// How many failed, by status; since the namespace was added.
    pub counts: Vec<FailureCount>,
    /// How many failed, by operation ([`Operation::ALL`]).
    pub by_operation: [u64; Operation::ALL.len()],
}

impl Shared {
    /// What every I/O thread has counted.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.iter().map(|counters| counters.totals()).fold(Totals::default(), |a, b| a + b)
    }

    /// Latencies from the socket on, of every I/O thread.
    pub(crate) fn socket_latency(&self) -> SocketLatencyStats {
        let mut sum = SocketLatencyStats::default();
        self.counters.iter().for_each(|counters| sum += &counters.from_socket.snapshot());
        sum
    }

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
        let hosts = self.listed_hosts.names();
        let named = |((subsystem, nsid, host), counts): ((usize, u32, u32), Counts)| NamespaceUsage {
            nqn: self.name_of(subsystem),
            nsid,
            host: (host as usize).checked_sub(1).and_then(|at| hosts.get(at).cloned()),
            counts,
        };
        sums.into_iter().map(named).collect()
    }

    /// The same of each I/O thread.
    fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        let usages: Vec<Vec<Usage>> = self.counters.iter().map(|counters| counters.usage.usages()).collect();
        let hosts = self.listed_hosts.names(); // afterwards, so that each number has a name
        let named = |usage: Usage| NamespaceUsage {
            nqn: self.name_of(usage.subsystem),
            nsid: usage.nsid,
            host: (usage.host as usize).checked_sub(1).and_then(|at| hosts.get(at).cloned()),
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

    /// Each namespace with its failed commands.
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
    /// Samples latencies from the socket on for a while, so that the next [`Server::stats`] has some.
    pub fn watch_latency(&self) {
        self.shared.latencies.watch_until(clock::now_ns() + WATCHED_NS);
    }

    /// Requests and bytes by host and namespace, of each I/O thread.
    #[must_use]
    pub fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        self.shared.usages_by_thread()
    }

    /// What its reactors have done so far; takes no lock of the server's.
    #[must_use]
    pub fn runtime_stats(&self) -> RuntimeStats {
        self.runtime.stats()
    }

    /// What the server has done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        ServerStats {
            totals: self.shared.totals(),
            threads: self.shared.thread_stats(),
            runtime: self.runtime.stats(),
            associations: self.shared.register.len(),
            power_states: self.shared.register.power_states(),
            failures: self.failures(),
            latencies: self.shared.namespace_latencies(),
            caps: self.cap_stats(),
            classes: self.notices.classes(),
            background: self.shared.background.stats(),
            background_overlaps: self.shared.background.overlaps(),
            upkeeps: self.shared.background.upkeeps().iter().filter_map(|upkeep| upkeep.stats()).collect(),
            refusals: self.shared.refusals.counts().to_vec(),
            usages: self.shared.usages(),
            listed_hosts: self.shared.listed_hosts.names(),
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
