//! The data syncs of one medium: one at a time, shared by all who wait for one, and remembered when one has failed.
//!
//! # The problem
//! A sync that fails may have lost writes that were completed long ago, and the kernel says so once for a descriptor, to
//! whichever sync comes first: that of a flush, or that of a write with Force Unit Access. A device that could not store
//! its cache says it once as well. Every later sync succeeds and proves nothing.
//!
//! # The algorithm
//! A sync runs under a lock, and the error number of the first that fails is stored before the lock is released. So a
//! flush whose own sync succeeds sees the failure of every sync that could have taken the report from it. Who waits for the
//! lock notes beforehand how many syncs have begun: one that began later covers all that had been written by then, and
//! its result is shared.
//!
//! What fails without a sync is not remembered. A plain `write` reports its own failure alone (no space, a read-only
//! file system, a bad sector) and leaves the report of lost writes for the next sync. A write with `RWF_DSYNC` is a write
//! and a sync in one, and its error number does not say which of the two has failed: so it is not used, and what must be
//! durable is written first and synced then. The exception is O_DIRECT to a device that executes Force Unit Access itself:
//! there Linux makes of `RWF_DSYNC` one command to the device (`REQ_FUA`), no sync is involved, and the error is the write's own. Only where the file is synchronous anyway (`mount -o sync`, `chattr +S`) is a
//! write that fails taken for a sync that failed, unless its error number rules that out.
//!
//! # The properties
//! - After a sync that failed no flush succeeds, until the medium is opened anew.
//! - No write that fails makes a flush fail, synchronous files apart.
//! - However many wait, each waits for at most the sync that runs and one more.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A moment: what was written before it, a sync that began after it covers.
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

    /// Has a sync that begins after `since`, and returns its result or error number: `sync` is called unless another one
    /// has begun meanwhile. May block.
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

    /// Takes note of a failure other than that of [`Syncs::run`].
    pub(super) fn remember(&self, number: i32) {
        let _ = self.failed.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The error number of the first sync that failed, if one has.
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
    fn a_sync_that_began_after_the_moment_is_shared_and_an_earlier_one_is_not() {
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
    fn a_moment_during_a_sync_is_not_covered_by_it() {
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

    /// The kernel tells one of two syncs at a time of the lost writes; the other must know of it when it is over.
    #[test]
    fn a_sync_beside_one_that_fails_knows_of_it() {
        let syncs = Syncs::new();
        let (running, is_running) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                syncs.run(syncs.now(), move || {
                    running.send(()).expect("somebody listens");
                    may_go_on.recv().expect("told to");
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
