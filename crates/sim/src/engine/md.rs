//! The thread of the kernel's md driver: what writes to an array, or rebuilds, goes through it, one page after the other.
//!
//! **Problem.** An array of the kernel is no faster than the thread that handles its stripes, whatever drives and other cores could do.
//!
//! **Algorithm.** A command of a request that writes, or that computes parity to read, waits for the thread, takes its time for each page of
//! 4 KiB, and goes to its drive then. A thread that had nothing to do is woken and switched to first. Parity is computed by the I/O thread, as
//! without md. The thread's own core runs nothing else, and its power is not counted.
//!
//! **Sources** (Linux 6.8, `drivers/md/raid5.c`). A stripe of the cache is a page of each drive (`RAID5_STRIPE_SIZE`). `raid5d` handles all stripes of an
//! array, unless `group_thread_cnt`, 0 by default, says otherwise. A read without a failed drive goes to its drive at once
//! (`chunk_aligned_read`). Locks of stripe hash and device are held within that time: with one thread nobody waits long for them.

use std::collections::VecDeque;

use super::shared::Submission;
use crate::machine::KernelCosts;
use crate::scenario::{Kind, Scenario};

/// What md's thread handles at a time.
const PAGE_BYTES: u32 = 4_096;

#[derive(Debug)]
pub(crate) struct Md {
    kernel: KernelCosts,
    /// The connections whose requests it handles.
    handles: Vec<bool>,
    free_ns: u64,
    /// What it hands to drives, in the order of time.
    ready: VecDeque<Submission>,
}

impl Md {
    /// `None` if the array is not md's.
    pub(crate) fn new(scenario: &Scenario) -> Option<Self> {
        let kernel = scenario.machine.kernel;
        let handles = scenario.workload.connections.iter().map(|connection| match &connection.request {
            Kind::Steps { steps, .. } => steps.iter().any(|step| step.writes > 0 || step.parity_kib > 0),
            Kind::Plain { .. } | Kind::Traced { .. } => false,
        });
        kernel.md.then(|| Self { kernel, handles: handles.collect(), free_ns: 0, ready: VecDeque::new() })
    }

    /// Whether a command of this connection waits for it.
    pub(crate) fn handles(&self, connection: u32) -> bool {
        self.handles[connection as usize]
    }

    /// It gets a command, after those that it got before.
    pub(crate) fn enter(&mut self, submission: Submission) {
        let at_ns = submission.at_ns;
        let begins_ns = if at_ns < self.free_ns {
            self.free_ns
        } else {
            at_ns + self.kernel.ipi_ns + u64::from(self.kernel.switch_ns)
        };
        let pages = submission.bytes.div_ceil(PAGE_BYTES);
        self.free_ns = begins_ns + u64::from(pages) * u64::from(self.kernel.md_page_ns);
        self.ready.push_back(Submission { at_ns: self.free_ns, ..submission });
    }

    /// What it hands to a drive next.
    pub(crate) fn first(&self) -> Option<&Submission> {
        self.ready.front()
    }

    /// Takes that, if it comes before `until_ns`.
    pub(crate) fn pop(&mut self, until_ns: u64) -> Option<Submission> {
        self.first().filter(|submission| submission.at_ns < until_ns)?;
        self.ready.pop_front()
    }
}
