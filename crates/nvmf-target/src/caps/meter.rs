//! Readings of bandwidth and latency of namespaces and hosts, added to those of the machine.
//!
//! **Counting.** Only while a policy uses such readings: a command then takes the path of capped ones, and its I/O thread
//! counts it in its bucket, which is added to the limit's counters at most every millisecond (`metered.rs`). Otherwise the
//! only cost is the branch that tests for caps.
//! **Windows.** Housekeeping reads the counters every [`WINDOW`]. Bytes count when their command is admitted.
//! **Numbers.** The machine's sources come first: their number never changes. Latencies of the server follow, then the
//! sources of each limit: bytes read and written, and for a namespace its latencies (`latency/mod.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_plant::{Cost, ReadingId, Scope, Source, Window};
use pilotlight_reactor::housekeeping::{Next, Task, Waker};
use pilotlight_reactor::{Housekeeping, Readings};

use super::metered::{QUANTITIES, count_of};
use super::{Caps, Entry};
use crate::latency::{Latencies, reading as latency};

/// Length of a window: the sampling interval of the policy `pass`.
const WINDOW: Duration = Duration::from_millis(100);
/// Estimated delay from the end of a window to its value: `FLUSH_NS` and housekeeping.
const LAG: Cost = Cost::Assumed(5_000_000);

/// The readings of the machine, if any, and those of the server's namespaces and hosts.
pub(super) struct CapReadings {
    machine: Option<Arc<dyn Readings>>,
    /// Number of the machine's sources.
    first: usize,
    caps: Arc<Caps>,
    latencies: Arc<Latencies>,
    waker: Waker,
}

/// Adds the task that reads the counters, and its readings to those of the machine.
pub(crate) fn start(
    machine: Option<Arc<dyn Readings>>,
    (caps, latencies): (&Arc<Caps>, &Arc<Latencies>),
    housekeeping: &Housekeeping,
) -> (Task, Arc<dyn Readings>) {
    let first = machine.as_ref().map_or(0, |machine| machine.sources().len());
    let (waker, mut windows, theirs) = (Waker::default(), Windows::default(), Arc::clone(caps));
    let task = housekeeping.add("bandwidth", &waker, move |now_ns| windows.measure(&theirs, now_ns));
    let readings = CapReadings { machine, first, caps: Arc::clone(caps), latencies: Arc::clone(latencies), waker };
    (task, Arc::new(readings))
}

/// The window of each limit.
#[derive(Default)]
struct Windows {
    /// Counters at its start; by place, which may get another limit.
    before: Vec<(Scope, [u64; 2])>,
    since_ns: Option<u64>,
}

impl Windows {
    /// Ends the windows at `now_ns` and begins others.
    fn measure(&mut self, caps: &Caps, now_ns: u64) -> Next {
        if !caps.are_metered() {
            *self = Self::default();
            return Next::Woken;
        }
        for (at, entry) in caps.entries().enumerate() {
            let totals = entry.limit.metered().totals();
            if at == self.before.len() {
                self.before.push((entry.scope, totals));
                continue;
            }
            let (of, last) = std::mem::replace(&mut self.before[at], (entry.scope, totals));
            if let Some(since_ns) = self.since_ns.filter(|_| of == entry.scope && !entry.limit.is_retired()) {
                entry.limit.metered().note(last, totals, now_ns, now_ns.saturating_sub(since_ns));
            }
        }
        self.since_ns = Some(now_ns);
        Next::At(now_ns + WINDOW.as_nanos() as u64)
    }
}

fn sources_of(entry: &Entry) -> impl Iterator<Item = Source> + use<> {
    let scope = entry.scope;
    let bytes = QUANTITIES
        .map(|quantity| Source { scope, quantity, window_ns: WINDOW.as_nanos() as u64, lag: LAG })
        .into_iter();
    bytes.chain(latency::sources_of(scope)).take(count_of(scope))
}

impl Readings for CapReadings {
    fn sources(&self) -> Vec<Source> {
        let machine = self.machine.as_ref().map(|machine| machine.sources()).unwrap_or_default();
        let limits = self.caps.entries().flat_map(|entry| sources_of(&entry));
        machine.into_iter().chain(latency::sources_of(Scope::Server)).chain(limits).collect()
    }

    fn want(&self, wanted: &[ReadingId]) {
        if let Some(machine) = &self.machine {
            machine.want(wanted);
        }
        let caps = &self.caps;
        caps.entries().for_each(|entry| entry.limit.latency().set_wanted(false));
        let (mut of_server, mut of_namespace, mut bytes) = (false, false, false);
        for id in wanted.iter().filter_map(|id| id.index().checked_sub(self.first)) {
            match id.checked_sub(latency::SOURCES).map(|at| caps.entry_of_source(at)) {
                None => of_server = true,
                Some(Some((_, at))) if at < QUANTITIES.len() => bytes = true,
                Some(Some((entry, _))) => {
                    entry.limit.latency().set_wanted(true);
                    of_namespace = true;
                }
                Some(None) => {}
            }
        }
        self.latencies.server().set_wanted(of_server);
        self.latencies.set_wanted(of_server || of_namespace);
        if caps.set_metered(bytes) {
            self.waker.wake();
        }
    }

    fn last(&self, id: ReadingId) -> Option<Window> {
        let Some(at) = id.index().checked_sub(self.first) else { return self.machine.as_ref()?.last(id) };
        let Some(at) = at.checked_sub(latency::SOURCES) else { return self.latencies.server().window(at) };
        let (entry, at) = self.caps.entry_of_source(at)?;
        match at.checked_sub(QUANTITIES.len()) {
            None => entry.limit.metered().window(at),
            Some(stat) => entry.limit.latency().window(stat),
        }
    }
}

impl fmt::Debug for CapReadings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapReadings").field("machine", &self.machine).finish_non_exhaustive()
    }
}
