//! Fault injection for tests: errors in place of the results of a medium's system calls.
//!
//! It reports errors as Linux does: a failed write affects only itself; a failed writeback is reported by the next sync,
//! once.

use std::sync::{Condvar, Mutex};

use super::super::Op;

#[derive(Debug, Default)]
struct State {
    /// The error number of every write.
    write: Option<i32>,
    /// The error number of the next sync.
    writeback: Option<i32>,
    /// The error number of every `fallocate`.
    fallocate: Option<i32>,
    /// Whether jobs that zero or deallocate get stuck.
    stuck: bool,
    opens_at_once: bool,
    works: u32,
    /// Whether the system refuses contexts.
    no_contexts: bool,
    /// Whether all work of threads gets stuck.
    stuck_works: bool,
    /// Whether submissions of asynchronous requests get stuck.
    stuck_submissions: bool,
}

/// The injected faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    released: Condvar,
}

impl Faults {
    /// Fails every write from now on with this error number; `None` stops that.
    pub(super) fn fail_writes(&self, number: Option<i32>) {
        self.state.lock().expect("no panic holds it").write = number;
    }

    /// Loses completed writes; the next sync reports it.
    pub(super) fn lose_writes(&self, number: i32) {
        self.state.lock().expect("no panic holds it").writeback = Some(number);
    }

    /// Fails every `fallocate` from now on with this error number.
    pub(super) fn fail_fallocate(&self, number: i32) {
        self.state.lock().expect("no panic holds it").fallocate = Some(number);
    }

    /// The fault of a `fallocate`.
    pub(super) fn of_fallocate(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").fallocate.map_or(Ok(()), Err)
    }

    /// Opens the contexts of later channels with them, so that their first transfers use AIO.
    pub(super) fn open_at_once(&self) {
        self.state.lock().expect("no panic holds it").opens_at_once = true;
    }

    pub(super) fn opens_at_once(&self) -> bool {
        self.state.lock().expect("no panic holds it").opens_at_once
    }

    /// Work of threads for requests so far.
    pub(super) fn works(&self) -> u32 {
        self.state.lock().expect("no panic holds it").works
    }

    /// Lets zeroing and deallocation get stuck until the result is dropped.
    pub(super) fn stick_long_jobs(&self) -> Stuck<'_> {
        self.state.lock().expect("no panic holds it").stuck = true;
        Stuck(self)
    }

    /// Lets the system refuse contexts, as at the limit `fs.aio-max-nr`.
    pub(super) fn refuse_contexts(&self) {
        self.state.lock().expect("no panic holds it").no_contexts = true;
    }

    /// Lets work of threads get stuck until the result is dropped.
    pub(super) fn stick_works(&self) -> Stuck<'_> {
        self.state.lock().expect("no panic holds it").stuck_works = true;
        Stuck(self)
    }

    /// The fault of opening a context.
    pub(super) fn of_context(&self) -> std::io::Result<()> {
        let refused = self.state.lock().expect("no panic holds it").no_contexts;
        if refused { Err(std::io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(()) }
    }

    /// Lets submissions of asynchronous requests get stuck until the result is dropped.
    pub(super) fn stick_submissions(&self) -> Stuck<'_> {
        self.state.lock().expect("no panic holds it").stuck_submissions = true;
        Stuck(self)
    }

    /// The fault of a submission: returns when they are not stuck.
    pub(super) fn of_submission(&self) {
        let state = self.state.lock().expect("no panic holds it");
        drop(self.released.wait_while(state, |state| state.stuck_submissions).expect("no panic holds it"));
    }

    /// Counts a work, and the fault of a long one: returns when these are not stuck.
    pub(super) fn of_work(&self, long: bool) {
        let mut state = self.state.lock().expect("no panic holds it");
        state.works += 1;
        drop(
            self.released
                .wait_while(state, |state| state.stuck_works || (long && state.stuck))
                .expect("no panic holds it"),
        );
    }

    /// The fault of a write.
    pub(super) fn of_write(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").write.map_or(Ok(()), Err)
    }

    /// The fault of a sync.
    pub(super) fn of_sync(&self) -> Result<(), i32> {
        self.state.lock().expect("no panic holds it").writeback.take().map_or(Ok(()), Err)
    }

    /// The AIO result of a transfer and its error number, with faults applied.
    pub(super) fn of_completion(&self, op: Op, result: i64, number: i32) -> (i64, i32) {
        match self.of_write() {
            Err(number) if matches!(op, Op::Write { .. }) && result >= 0 => (-i64::from(number), number),
            _ => (result, number),
        }
    }
}

/// While it exists, jobs are stuck.
pub(super) struct Stuck<'a>(&'a Faults);

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().expect("no panic holds it");
        (state.stuck, state.stuck_submissions, state.stuck_works) = (false, false, false);
        self.0.released.notify_all();
    }
}
