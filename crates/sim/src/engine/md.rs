//! The thread of the kernel's md driver, which processes writes to an array and rebuilds page by page.
//!
//! **Problem.** The thread that handles the stripes limits the throughput of a kernel array, regardless of drives and other cores.
//!
//! **Algorithm.** A command of a request that writes, or that computes parity to read, queues for the thread, occupies it for each page of 4 KiB, and
//! then goes to its drive. An idle thread is first woken and switched to. The I/O thread computes parity, as without md. The thread's core runs
//! nothing else, and its power is not counted.
//!
//! **Sources** (Linux 6.8, `drivers/md/raid5.c`). A stripe of the cache is a page of each drive (`RAID5_STRIPE_SIZE`). `raid5d` handles all stripes of an
//! array, unless `group_thread_cnt`, 0 by default, says otherwise. A read without a failed drive goes to its drive at once
//! (`chunk_aligned_read`). The time includes the locks of stripe hash and device: with one thread, contention is low.

use std::collections::VecDeque;

use super::request::Submission;
use crate::machine::KernelCosts;
use crate::scenario::{Kind, Scenario};

/// Unit of md's thread.
const PAGE_BYTES: u32 = 4_096;

#[derive(Debug)]
pub(crate) struct Md {
    kernel: KernelCosts,
    /// Connections whose requests md handles.
    handles: Vec<bool>,
    free_ns: u64,
    /// Submissions to drives, in time order.
    ready: VecDeque<Submission>,
}

impl Md {
    /// `None` without an md array.
    pub(crate) fn new(scenario: &Scenario) -> Option<Self> {
        let kernel = scenario.machine.kernel;
        let handles = scenario.workload.connections.iter().map(|connection| match &connection.request {
            Kind::Steps { steps, .. } => steps.iter().any(|step| step.writes > 0 || step.parity_kib > 0),
            Kind::Plain { .. } | Kind::Traced { .. } => false,
        });
        kernel.md.then(|| Self { kernel, handles: handles.collect(), free_ns: 0, ready: VecDeque::new() })
    }

    /// Whether commands of this connection go through md.
    pub(crate) fn handles(&self, connection: u32) -> bool {
        self.handles[connection as usize]
    }

    /// Queues a command.
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

    /// The next submission to a drive.
    pub(crate) fn first(&self) -> Option<&Submission> {
        self.ready.front()
    }

    /// Removes the next submission, if it is before `until_ns`.
    pub(crate) fn pop(&mut self, until_ns: u64) -> Option<Submission> {
        self.first().filter(|submission| submission.at_ns < until_ns)?;
        self.ready.pop_front()
    }
}
