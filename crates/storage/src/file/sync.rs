//! Data syncs of one medium: serialized, shared by all waiters, and remembered if one fails.
//!
//! # The problem
//! A failed sync may have lost writes that completed long before, and the kernel reports that once per descriptor, to the
//! next sync: that of a flush, or that of a write with Force Unit Access. A device that could not store its cache also
//! reports it once. Every later sync succeeds and proves nothing.
//!
//! # The algorithm
//! A sync runs under a lock, and the error number of the first failure is stored before the lock is released. So a flush
//! whose own sync succeeds sees the failure of every sync that could have consumed the report. A waiter notes beforehand
//! how many syncs have begun: one that began later covers all earlier writes, and its result is shared.
//!
//! Failures without a sync are not remembered. A plain `write` reports only its own failure (no space, a read-only file
//! system, a bad sector) and leaves the report of lost writes for the next sync. A write with `RWF_DSYNC` is a write and a
//! sync, and its error number does not identify the failed one: so it is not used, and durable data is written and then
//! synced. The exception is O_DIRECT to a device that executes Force Unit Access itself: there Linux turns `RWF_DSYNC`
//! into one command (`REQ_FUA`) without a sync, and the error is the write's own. Only in a synchronous file (`mount -o
//! sync`, `chattr +S`) does a failed write count as a failed sync, unless its error number rules that out.
//!
//! # The properties
//! - After a failed sync no flush succeeds until the medium is reopened.
//! - A failed write does not fail a flush, except in synchronous files.
//! - Each waiter waits for at most the running sync and one more.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A moment: a sync that begins after it covers all writes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u64);

#[derive(Debug)]
struct Last {
    /// How many syncs had begun, this one included.
    number: u64,
    result: Result<(), i32>,
}

/// The syncs of one medium.
#[derive(Debug)]
pub(super) struct Syncs {
    begun: AtomicU64,
    /// Locked while a sync runs.
    last: Mutex<Last>,
    /// The error number of the first sync that failed; 0 for none.
    failed: AtomicI32,
}

impl Syncs {
    pub(super) fn new() -> Self {
        let last = Mutex::new(Last { number: 0, result: Ok(()) });
        Self { begun: AtomicU64::new(0), last, failed: AtomicI32::new(0) }
    }

    pub(super) fn now(&self) -> Moment {
        Moment(self.begun.load(Ordering::SeqCst))
    }

    /// Returns the result of a sync that began after `since`: `sync` is called unless another one has begun meanwhile. May
    /// block.
    pub(super) fn run(&self, since: Moment, sync: impl FnOnce() -> Result<(), i32>) -> Result<(), i32> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.number <= since.0 {
            last.number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            last.result = sync();
        }
        if let Err(number) = last.result {
            self.remember(number);
        }
        last.result
    }

    /// Records a failure outside of [`Syncs::run`].
    pub(super) fn remember(&self, number: i32) {
        let _ = self.failed.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The error number of the first failed sync, if any.
    pub(super) fn first_failure(&self) -> Result<(), i32> {
        match self.failed.load(Ordering::SeqCst) {
            0 => Ok(()),
            number => Err(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn only_syncs_begun_after_the_moment_are_shared() {
        let syncs = Syncs::new();
        let before = syncs.now();
        assert_eq!(syncs.run(before, || Ok(())), Ok(()));
        assert_eq!(syncs.run(before, || unreachable!("one has begun since")), Ok(()));
        let mut calls = 0;
        let mut count = || {
            calls += 1;
            Ok(())
        };
        assert_eq!(syncs.run(syncs.now(), &mut count), Ok(()));
        assert_eq!(syncs.run(syncs.now(), &mut count), Ok(()));
        assert_eq!(calls, 2);
    }

    #[test]
    fn a_running_sync_does_not_cover_a_later_moment() {
        let syncs = Syncs::new();
        let mut during = None;
        let first = syncs.run(syncs.now(), || {
            during = Some(syncs.now());
            Ok(())
        });
        assert_eq!(first, Ok(()));
        assert_eq!(syncs.run(during.expect("called"), || Err(5)), Err(5), "another one had to run");
    }

    #[test]
    fn a_failed_sync_is_shared_and_remembered() {
        let syncs = Syncs::new();
        let before = syncs.now();
        assert_eq!(syncs.first_failure(), Ok(()));
        assert_eq!(syncs.run(before, || Err(5)), Err(5));
        assert_eq!(syncs.run(before, || unreachable!("one has begun since")), Err(5));
        assert_eq!(syncs.run(syncs.now(), || Err(28)), Err(28));
        assert_eq!(syncs.run(syncs.now(), || Ok(())), Ok(()), "its own result");
        assert_eq!(syncs.first_failure(), Err(5));
    }

    /// The kernel reports lost writes to one of two concurrent syncs; the other must see the failure when it ends.
    #[test]
    fn a_concurrent_sync_sees_the_failure_of_another() {
        let syncs = Syncs::new();
        let (running, is_running) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                syncs.run(syncs.now(), move || {
                    running.send(()).expect("the receiver exists");
                    may_go_on.recv().expect("a message");
                    Err(5)
                })
            });
            is_running.recv().expect("it runs");
            let other = scope.spawn(|| (syncs.run(syncs.now(), || Ok(())), syncs.first_failure()));
            go_on.send(()).expect("it waits");
            assert_eq!(other.join().expect("no panic"), (Ok(()), Err(5)));
        });
    }
}
