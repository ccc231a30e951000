//! Requests and bytes by host, namespace and operation, counted by I/O threads and read by OS threads.
//!
//! # The problem
//! Counters per host must be bounded although a host chooses its own name, and the request path may neither allocate nor
//! lock.
//!
//! # Terms
//! A host is *listed* if the operator names it: as allowed, with a cap, or with a priority. A *row* has the counters of one
//! I/O thread for one listed host and one subsystem; all other hosts share a row. A row has a *cell* per namespace.
//!
//! # The properties
//! - The number of rows is bounded by the configuration: I/O threads, subsystems, listed hosts.
//! - A host stays listed while the server runs, and removed namespaces keep their cells: counters never decrease. Only of more than
//!   [`MANY_LISTED`] hosts those are forgotten that are neither named by the operator any more nor connected.
//! - Commands of a host on connections from before it was listed are counted with all others.
//! - Rows and cells are allocated at Connect and when a namespace is added, by the I/O thread that uses them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_nvmf_proto::operation::Operation;
use pilotlight_reactor::cells::add;

use crate::config::MAX_NSID;

/// Operations with data transfer: the first two of [`Operation::ALL`].
const DATA_OPERATIONS: usize = 2;
const CHUNK: usize = 32;

/// The counters of a namespace in a row.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// By [`Operation`].
    requests: [AtomicU64; Operation::ALL.len()],
    bytes: [AtomicU64; DATA_OPERATIONS],
}

/// The counters of one I/O thread for one host and [`CHUNK`] consecutive namespaces of one subsystem. One thread writes.
pub(crate) type Chunk = [Cell; CHUNK];

/// The chunk of a namespace, and its index there.
#[inline]
fn locate(nsid: u32) -> (usize, usize) {
    let at = (nsid as usize).wrapping_sub(1);
    (at / CHUNK, at % CHUNK)
}

/// The row of a queue, as far as it is used.
#[derive(Debug, Default)]
pub struct Row {
    host: u32,
    subsystem: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl Row {
    /// For a host and a subsystem, prepared for these namespaces.
    pub(crate) fn new(host: u32, subsystem: usize, nsids: impl Iterator<Item = u32>, rows: &Rows) -> Self {
        let mut row = Self { host, subsystem, chunks: Vec::new() };
        nsids.for_each(|nsid| row.prepare(nsid, rows));
        row
    }

    /// Allocates the cell of namespace `nsid`.
    pub(crate) fn prepare(&mut self, nsid: u32, rows: &Rows) {
        let (last, _) = locate(nsid.clamp(1, MAX_NSID));
        for at in self.chunks.len()..=last {
            self.chunks.push(rows.chunk(self.host, self.subsystem, at));
        }
    }

    /// Counts a completed Read or Write of `bytes` bytes.
    #[inline]
    pub(crate) fn count_data(&self, nsid: u32, operation: Operation, bytes: u64) {
        let Some(cell) = self.cell(nsid) else { return };
        add(&cell.requests[operation as usize], 1);
        if let Some(total) = cell.bytes.get(operation as usize) {
            add(total, bytes);
        }
    }

    /// Counts another completed command.
    #[cold]
    pub(crate) fn count_other(&self, nsid: u32, operation: Operation) {
        if let Some(cell) = self.cell(nsid) {
            add(&cell.requests[operation as usize], 1);
        }
    }

    #[inline]
    fn cell(&self, nsid: u32) -> Option<&Cell> {
        let (chunk, at) = locate(nsid);
        Some(&self.chunks.get(chunk)?[at])
    }
}

/// Counters of a host and a namespace, or a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completed commands by [`Operation`].
    pub requests: [u64; Operation::ALL.len()],
    /// Bytes of completed reads and of writes.
    pub bytes: [u64; DATA_OPERATIONS],
}

impl Counts {
    fn load(cell: &Cell) -> Self {
        Self {
            requests: cell.requests.each_ref().map(|count| count.load(Relaxed)),
            bytes: cell.bytes.each_ref().map(|count| count.load(Relaxed)),
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.requests.iter_mut().zip(other.requests).for_each(|(sum, count)| *sum += count);
        self.bytes.iter_mut().zip(other.bytes).for_each(|(sum, count)| *sum += count);
    }
}

/// Counters of a thread for a listed host (or all others) and a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// 1 + the index in [`ListedHosts`]; 0 for hosts that are not listed.
    pub host: u32,
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The counters.
    pub counts: Counts,
}

/// All rows of an I/O thread. The lock is for Connect, new namespaces and readers.
#[derive(Debug, Default)]
pub struct Rows(Mutex<HashMap<Part, Arc<Chunk>>>);

/// A part of a row: host, subsystem, and place in the row.
type Part = (u32, usize, usize);

impl Rows {
    /// A part of a row, created if missing.
    fn chunk(&self, host: u32, subsystem: usize, at: usize) -> Arc<Chunk> {
        Arc::clone(self.lock().entry((host, subsystem, at)).or_default())
    }

    /// All counters that are not zero.
    pub(crate) fn usages(&self) -> Vec<Usage> {
        let parts = self.lock().clone();
        let of_part = |(&(host, subsystem, at), cells): (&Part, &Arc<Chunk>)| {
            let first = (at * CHUNK) as u32 + 1;
            let usage = |(nsid, cell)| Usage { host, subsystem, nsid, counts: Counts::load(cell) };
            (first..).zip(cells.iter()).map(usage).filter(|it| it.counts != Counts::default()).collect::<Vec<_>>()
        };
        parts.iter().flat_map(of_part).collect()
    }

    /// Drops the rows of these hosts and subsystems, which have no connections.
    pub(crate) fn forget(&self, is_it: impl Fn((u32, usize)) -> bool) {
        self.lock().retain(|&(host, subsystem, _), _| !is_it((host, subsystem)));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Part, Arc<Chunk>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listed hosts above which those are forgotten that need not be listed.
const MANY_LISTED: usize = 4096;

/// The hosts named by the operator since the start.
#[derive(Debug, Default)]
pub struct ListedHosts(Mutex<Listed>);

#[derive(Debug, Default)]
struct Listed {
    numbers: HashMap<String, u32>,
    /// By number, from 1; empty for a free one.
    names: Vec<String>,
    free: Vec<u32>,
    /// Hosts at which they are looked through.
    forget_at: usize,
}

impl ListedHosts {
    /// Lists a host.
    pub(crate) fn add(&self, nqn: &str) {
        let listed = &mut *self.lock();
        if nqn.is_empty() || listed.numbers.contains_key(nqn) {
            return;
        }
        let number = listed.free.pop().unwrap_or_else(|| {
            listed.names.push(String::new());
            listed.names.len() as u32
        });
        nqn.clone_into(&mut listed.names[number as usize - 1]);
        listed.numbers.insert(nqn.to_owned(), number);
    }

    /// Whether there are so many that some should be forgotten.
    pub(crate) fn are_many(&self) -> bool {
        let listed = self.lock();
        listed.numbers.len() >= listed.forget_at.max(MANY_LISTED)
    }

    /// Forgets hosts. Their numbers are used again after `forgotten`, which drops their counters.
    pub(crate) fn forget(&self, is_needed: impl Fn(&str) -> bool, forgotten: impl FnOnce(&HashSet<u32>)) {
        let listed = &mut *self.lock();
        let ended: HashSet<u32> =
            listed.numbers.extract_if(|nqn, _| !is_needed(nqn)).map(|(_, number)| number).collect();
        listed.forget_at = 2 * listed.numbers.len();
        ended.iter().for_each(|&number| listed.names[number as usize - 1].clear());
        forgotten(&ended);
        listed.free.extend(ended);
    }

    /// The number of a host in [`Usage`].
    pub(crate) fn number_of(&self, nqn: &str) -> u32 {
        self.lock().numbers.get(nqn).copied().unwrap_or(0)
    }

    /// The names by number, from 1; empty for a number without a host.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().names.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Requests and bytes by host, subsystem and namespace agree with a map.
        #[test]
        fn requests_are_counted_as_in_a_map(
            events in prop::collection::vec((0..3_u32, 0..2_usize, 1..=MAX_NSID, 0..7_usize, 0..9_u64), 0..60),
        ) {
            let (rows, mut expected) = (Rows::default(), BTreeMap::<(u32, usize, u32), Counts>::new());
            for (host, subsystem, nsid, operation, bytes) in events {
                let row = Row::new(host, subsystem, std::iter::once(nsid), &rows);
                let counts = expected.entry((host, subsystem, nsid)).or_default();
                counts.requests[operation] += 1;
                match Operation::ALL[operation] {
                    moving @ (Operation::Read | Operation::Write) => {
                        row.count_data(nsid, moving, bytes);
                        counts.bytes[operation] += bytes;
                    }
                    other => row.count_other(nsid, other),
                }
            }
            let counted = rows.usages().into_iter().map(|it| ((it.host, it.subsystem, it.nsid), it.counts)).collect();
            prop_assert_eq!(expected, counted);
        }
    }

    #[test]
    fn a_listed_host_keeps_its_number() {
        let hosts = ListedHosts::default();
        ["a", "b", "", "a"].into_iter().for_each(|name| hosts.add(name));
        assert_eq!(["a", "b", "", "c"].map(|name| hosts.number_of(name)), [1, 2, 0, 0]);
        assert_eq!(hosts.names(), ["a", "b"]);
    }

    #[test]
    fn hosts_that_come_and_go_leave_numbers_to_others() {
        let (hosts, rows) = (ListedHosts::default(), Rows::default());
        hosts.add("stays");
        for round in 0..3 * MANY_LISTED {
            if hosts.are_many() {
                let forget = |numbers: &HashSet<u32>| rows.forget(|(host, _)| numbers.contains(&host));
                hosts.forget(|name| name == "stays" || name == "7", forget);
            }
            hosts.add(&round.to_string());
            let number = hosts.number_of(&round.to_string());
            Row::new(number, 0, std::iter::once(1), &rows).count_data(1, Operation::Read, 1);
        }
        assert!(hosts.names().len() <= MANY_LISTED, "{} numbers", hosts.names().len());
        assert_eq!(["stays", "7", "8"].map(|name| hosts.number_of(name)), [1, 9, 0]);
        let counted = rows.usages();
        assert!(counted.iter().all(|usage| usage.counts.requests[0] == 1), "each host has its own");
    }

    #[test]
    fn invalid_nsids_are_not_counted() {
        let rows = Rows::default();
        let row = Row::new(0, 0, [0, MAX_NSID, u32::MAX].into_iter(), &rows);
        [0, MAX_NSID + 1, u32::MAX].into_iter().for_each(|nsid| row.count_data(nsid, Operation::Read, 1));
        assert!(rows.usages().is_empty());
    }
}
