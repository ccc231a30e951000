//! One die: what it reads and programs, in the order it was asked to.
//!
//! Without suspension a die is one queue, `start = max(at, free)`. With it, a read that finds a program under way waits for the
//! suspension only, and what the die was programming ends later by what the read took. Reads among themselves and programs
//! among themselves stay in order.

/// A die: until when it is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Die {
    /// Everything in the queue of reads is done; without suspension, everything at all.
    free: u64,
    /// All programs and erases are done.
    programmed: u64,
}

impl Die {
    /// When all programs that the die was asked are done.
    #[inline]
    pub(super) fn programmed(&self) -> u64 {
        self.programmed
    }

    /// When everything that the die was asked is done.
    #[inline]
    pub(super) fn idle_at(&self) -> u64 {
        self.free.max(self.programmed)
    }

    /// A read asked at `at` that takes `service`; when it is done.
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
            let suspending = if at > self.free { suspend_ns } else { 0 }; // else the die is still suspended
            let busy = service + suspending;
            self.programmed += busy;
            busy
        };
        self.free = start + busy;
        self.free
    }

    /// A program (or erase) asked at `at`; when it would be done if no read came.
    #[inline]
    pub(super) fn program(&mut self, at: u64, service: u64, suspend_ns: Option<u64>) -> u64 {
        self.programmed = at.max(self.idle_at()) + service;
        if suspend_ns.is_none() {
            self.free = self.programmed;
        }
        self.programmed
    }
}
