//! What the director reads from the cells of reactors and I/O threads: what a tick and an interval are made of.

use std::sync::atomic::Ordering::Relaxed;

use pilotlight_plant::{CoreId, CoreSample, ThreadCount, ThreadId, ThreadSample};

use super::Director;
use crate::board::ahead;
use crate::cells::ThreadCell;

/// What was read last, to tell what has come since.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    requests: u64,
    busy_ns: u64,
    answered: u64,
    in_progress_ns: u64,
}

impl Seen {
    pub(super) fn of(cell: &ThreadCell) -> Self {
        Self {
            requests: cell.requests.load(Relaxed),
            busy_ns: cell.busy_ns.load(Relaxed),
            answered: cell.answered.load(Relaxed),
            in_progress_ns: cell.in_progress_ns.load(Relaxed),
        }
    }
}

/// All the requests that an I/O thread has polled, by the last tick and as now known; and its busy time by the last tick, if anyone
/// wants to know.
#[derive(Clone, Copy, Default)]
pub(super) struct Polled {
    before: u64,
    now: u64,
    busy_ns: u64,
}

impl Polled {
    pub(super) fn of(cell: &ThreadCell) -> Self {
        let requests = cell.requests.load(Relaxed);
        Self { before: requests, now: requests, busy_ns: cell.busy_ns.load(Relaxed) }
    }
}

impl Director {
    /// What every I/O thread has polled since the last tick, from the boards of their reactors.
    pub(super) fn gather(&mut self) {
        let Self { peers, boards, on_tick, came, counts, .. } = self;
        came.clear();
        for (peer, seen) in peers.iter().zip(boards) {
            peer.cell.board.read(seen, |thread, count| {
                let Some(polled) = on_tick.get_mut(thread) else { return }; // the policy does not know it
                let requests = ahead(count, polled.now);
                if requests > 0 && polled.now == polled.before {
                    came.push(thread as u16);
                }
                polled.now += requests;
            });
        }
        if !came.is_sorted() {
            came.sort_unstable();
        }
        counts.clear();
        counts.extend(came.iter().map(|&thread| {
            let polled = &mut on_tick[usize::from(thread)];
            let requests = (polled.now - polled.before) as u32;
            polled.before = polled.now;
            ThreadCount { thread: ThreadId(thread), requests, busy_ns: 0 }
        }));
        if self.wants.tick_busy {
            self.gather_busy();
        }
    }

    /// Adds the busy time of each I/O thread to its count. That of one that polled nothing is no part of the next tick in which
    /// something comes.
    fn gather_busy(&mut self) {
        let mut counts = self.counts.iter_mut().peekable();
        for (thread, (cell, polled)) in (0..).zip(self.cells.iter().zip(&mut self.on_tick)) {
            let busy_ns = cell.busy_ns.load(Relaxed);
            let before_ns = std::mem::replace(&mut polled.busy_ns, busy_ns);
            if let Some(count) = counts.next_if(|count| count.thread == ThreadId(thread)) {
                count.busy_ns = busy_ns.saturating_sub(before_ns);
            }
        }
    }

    pub(super) fn core_totals(&self) -> Vec<CoreSample> {
        self.topology.cores().map(|core| self.core_total(core)).collect()
    }

    /// What a core has done since it started.
    fn core_total(&self, core: CoreId) -> CoreSample {
        let cell = &self.peers[core.index()].cell;
        let busy_ns = cell.busy_ns.load(Relaxed);
        CoreSample { state: self.state(core), busy_ns, awake_ns: busy_ns + cell.idle_ns.load(Relaxed) }
    }

    /// What every I/O thread did since the last interval; whether all of it was quiet.
    pub(super) fn fill_threads(&mut self) -> bool {
        self.threads.clear();
        let mut quiet = true;
        for ((cell, before), order) in self.cells.iter().zip(&mut self.on_interval).zip(&self.orders) {
            let now = Seen::of(cell);
            let home = order.to.unwrap_or_else(|| cell.home());
            let sample = ThreadSample {
                home,
                requests: now.requests - before.requests,
                busy_ns: now.busy_ns - before.busy_ns,
                answered: now.answered - before.answered,
                in_progress_ns: now.in_progress_ns - before.in_progress_ns,
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

    pub(super) fn fill_cores(&mut self) {
        self.cores.clear();
        for core in self.topology.cores() {
            let now = self.core_total(core);
            let before = &mut self.cores_on_interval[core.index()];
            let (busy_ns, awake_ns) = (now.busy_ns - before.busy_ns, now.awake_ns - before.awake_ns);
            self.cores.push(CoreSample { state: now.state, busy_ns, awake_ns });
            *before = now;
        }
    }
}
