//! Samples: ticks and intervals from the cells of reactors and I/O threads.

use std::sync::atomic::Ordering::Relaxed;

use pilotlight_plant::{CoreId, CoreSample, ThreadCount, ThreadId, ThreadSample};

use super::Director;
use crate::cells::ThreadCell;

/// The last values of an I/O thread's counters.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    requests: u64,
    busy_ns: u64,
    answered: u64,
    in_progress_ns: u64,
}

impl Counters {
    pub(super) fn load(cell: &ThreadCell) -> Self {
        Self {
            requests: cell.requests.load(Relaxed),
            busy_ns: cell.busy_ns.load(Relaxed),
            answered: cell.answered.load(Relaxed),
            in_progress_ns: cell.in_progress_ns.load(Relaxed),
        }
    }
}

impl Director {
    /// Requests of every I/O thread since the last tick: one load from each.
    pub(super) fn collect_counts(&mut self) {
        self.counts.clear();
        let busy = self.wants.tick_busy;
        for (thread, (cell, seen)) in self.cells.iter().zip(&mut self.on_tick).enumerate() {
            let requests = cell.requests.load(Relaxed);
            if requests == seen.requests && !busy {
                continue;
            }
            let busy_ns = if busy { cell.busy_ns.load(Relaxed) } else { 0 };
            let before = std::mem::replace(seen, Counters { requests, busy_ns, ..*seen });
            if requests == before.requests {
                continue; // its busy time is not part of the next tick with requests
            }
            self.counts.push(ThreadCount {
                thread: ThreadId(thread as u16),
                requests: (requests - before.requests) as u32,
                busy_ns: busy_ns.saturating_sub(before.busy_ns),
            });
        }
    }

    /// Whether there are requests since the last tick.
    pub(super) fn has_uncounted(&self) -> bool {
        let mut cells = self.cells.iter().zip(&self.on_tick);
        cells.any(|(cell, seen)| cell.requests.load(Relaxed) != seen.requests)
    }

    /// Whether the current interval is not quiet.
    pub(super) fn has_unreported(&self) -> bool {
        self.cells.iter().zip(&self.on_interval).any(|(cell, seen)| {
            let served = cell.answered.load(Relaxed) != seen.answered || cell.in_progress.load(Relaxed) > 0;
            cell.requests.load(Relaxed) != seen.requests || self.wants.service && served
        })
    }

    pub(super) fn core_totals(&self, now_ns: u64) -> Vec<CoreSample> {
        self.topology.cores().map(|core| self.core_total(core, now_ns)).collect()
    }

    /// The next sample of the cores begins.
    pub(super) fn begin_cores(&mut self, now_ns: u64) {
        for core in self.topology.cores() {
            self.cores_on_interval[core.index()] = self.core_total(core, now_ns);
        }
    }

    /// Counters of a core since its start.
    fn core_total(&self, core: CoreId, now_ns: u64) -> CoreSample {
        let cell = &self.peers[core.index()].cell;
        let busy_ns = cell.busy_ns.load(Relaxed);
        let rest_ns = match cell.rests_since_ns.load(Relaxed) {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        let awake_ns = busy_ns + cell.idle_ns.load(Relaxed) + cell.rested_ns.load(Relaxed) + rest_ns;
        CoreSample { state: self.state(core), busy_ns, awake_ns }
    }

    /// Samples of I/O threads since the last interval; whether all were quiet.
    pub(super) fn fill_threads(&mut self) -> bool {
        self.threads.clear();
        let mut quiet = true;
        let cells = self.cells.iter().zip(&mut self.on_interval).zip(&self.pending_moves).enumerate();
        for (thread, ((cell, before), pending)) in cells {
            let now = Counters::load(cell);
            let home = pending.to.unwrap_or_else(|| cell.home());
            let sample = ThreadSample {
                home,
                requests: now.requests - before.requests,
                busy_ns: now.busy_ns - before.busy_ns,
                answered: now.answered - before.answered,
                in_progress_ns: now.in_progress_ns - before.in_progress_ns,
                class: self.classes.get(thread).copied().flatten(),
            };
            quiet &= sample.requests == 0;
            if self.wants.service {
                let none = sample.answered == 0 && sample.in_progress_ns == 0;
                quiet &= none && cell.in_progress.load(Relaxed) == 0;
            }
            self.threads.push(sample);
            *before = now;
        }
        quiet
    }

    /// The readings that the policy wants.
    pub(super) fn fill_readings(&mut self, now_ns: u64) {
        self.read.clear();
        for &id in &self.wants.readings {
            let last = self.readings.as_ref().and_then(|readings| readings.last(id));
            self.read.push(self.capabilities.sources[id.index()].reading(id, last, now_ns));
        }
    }

    /// A core that rests without a command is awake and idle to the policy: its load is a share of the interval, not of its wake-ups. A rest
    /// that ends while it is read may count twice, hence the bounds.
    pub(super) fn fill_cores(&mut self, now_ns: u64, elapsed_ns: u64) {
        self.cores.clear();
        for core in self.topology.cores() {
            let now = self.core_total(core, now_ns);
            let before = &mut self.cores_on_interval[core.index()];
            let (busy_ns, awake_ns) = (now.busy_ns - before.busy_ns, now.awake_ns.saturating_sub(before.awake_ns));
            self.cores.push(CoreSample { state: now.state, busy_ns, awake_ns: awake_ns.min(elapsed_ns.max(busy_ns)) });
            *before = now;
        }
    }
}
