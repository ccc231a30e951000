//! One die: its reads and programs, in order of submission.
//!
//! Without suspension a die is one queue, `start = max(at, free)`. With suspension, a read during a program waits for the suspension only, and the
//! die's programs end later by the time of the read. Reads among themselves and programs among themselves remain in order.

/// A die: the ends of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Die {
    /// End of all reads; without suspension, of all operations.
    free: u64,
    /// End of all programs and erases.
    programmed: u64,
}

impl Die {
    /// End of all submitted programs.
    #[inline]
    pub(super) fn programmed(&self) -> u64 {
        self.programmed
    }

    /// End of all submitted operations.
    #[inline]
    pub(super) fn idle_at(&self) -> u64 {
        self.free.max(self.programmed)
    }

    /// Reads at `at` for `service`; returns the end of the read.
    #[inline]
    pub(super) fn read(&mut self, at: u64, service: u64, suspend_ns: Option<u64>) -> u64 {
        let start = at.max(self.free);
        let Some(suspend_ns) = suspend_ns else {
            self.free = start + service;
            return self.free;
        };
        let busy = if start >= self.programmed {
            service
        } else {
            let suspending = if at > self.free { suspend_ns } else { 0 }; // otherwise the die is still suspended
            let busy = service + suspending;
            self.programmed += busy;
            busy
        };
        self.free = start + busy;
        self.free
    }

    /// Programs (or erases) at `at`; returns the end without further reads.
    #[inline]
    pub(super) fn program(&mut self, at: u64, service: u64, suspend_ns: Option<u64>) -> u64 {
        self.programmed = at.max(self.idle_at()) + service;
        if suspend_ns.is_none() {
            self.free = self.programmed;
        }
        self.programmed
    }
}
